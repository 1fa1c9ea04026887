//! A chart of each scenario, as SVG that reads on light paper and dark: bars by case and contender, or lines
//! where samples say how much there was. Medians; a thin line spans the runs.

mod bars;
mod canvas;
mod lines;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use canvas::{Anchor, Canvas};
use plotters::style::RGBColor;

use crate::report::{Report, Sample, Spread};

/// Samples of one case and contender.
type Group<'a> = Vec<&'a Sample>;

const WIDTH: i32 = 960;
const MARGIN: i32 = 20;
const TITLE: i32 = 44;
/// Between two panels side by side.
const GUTTER: i32 = 28;
/// Figures that say how much there was: samples that bear one make a line.
const AMOUNTS: [&str; 2] = ["backlog", "retained rows"];

const INK: RGBColor = RGBColor(0x73, 0x7b, 0x85);
const FAINT: RGBColor = RGBColor(0xa4, 0xab, 0xb4);

/// What a panel shows of a sample.
#[derive(Clone, Copy)]
enum Measure {
    Rate,
    ServerCpu,
    Wal,
    Transactions,
    P50,
    P99,
    Figure(&'static str),
}

/// Panels side by side, and what one unit of a sample's work is called.
struct Panels {
    unit: &'static str,
    shown: Vec<Measure>,
}

/// A place for one panel: from where to where across.
#[derive(Clone, Copy)]
struct Column {
    left: i32,
    right: i32,
}

/// Writes `<scenario>.svg` for each scenario of a report.
pub(crate) fn write(report: &Report, directory: &Path) -> Result<()> {
    let groups = report.groups();
    let mut scenarios: Vec<&str> = groups.iter().map(|group| &*group[0].scenario).collect();
    scenarios.dedup();
    for scenario in scenarios {
        let svg = draw(scenario, &groups)?;
        let path = directory.join(format!("{scenario}.svg"));
        fs::write(&path, svg).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn draw(scenario: &str, groups: &[Group<'_>]) -> Result<String> {
    let of_it = || groups.iter().filter(|group| group[0].scenario == scenario);
    let lined: Vec<_> = of_it().filter(|group| amount(group).is_some()).collect();
    let barred: Vec<_> = of_it().filter(|group| amount(group).is_none()).collect();
    let panels = Panels::of(scenario, of_it().any(|group| group[0].latency.is_some()));
    let height = TITLE + lines::height(&lined) + bars::height(&barred) + MARGIN;
    let mut svg = String::new();
    {
        let canvas = Canvas::new(&mut svg, WIDTH, height);
        title(&canvas, scenario, &of_it().map(|group| &*group[0].contender).collect::<Vec<_>>())?;
        let below = lines::draw(&canvas, TITLE, &panels, &lined)?;
        bars::draw(&canvas, below, &panels, &barred)?;
        canvas.finish()?;
    }
    Ok(svg)
}

/// The scenario's name, and which colour is whose.
fn title(canvas: &Canvas<'_>, scenario: &str, contenders: &[&str]) -> Result<()> {
    canvas.text((MARGIN, TITLE / 2), 18, INK, Anchor::Left, scenario)?;
    let mut met: Vec<&str> = Vec::new();
    for contender in contenders {
        if !met.contains(contender) {
            met.push(contender);
        }
    }
    let mut right = WIDTH - MARGIN;
    for contender in met.iter().rev() {
        right -= canvas::text_width(contender, 12);
        canvas.text((right, TITLE / 2), 12, INK, Anchor::Left, contender)?;
        right -= 16;
        canvas.bar((right, TITLE / 2 - 5), (right + 10, TITLE / 2 + 5), colour(contender))?;
        right -= 12;
    }
    Ok(())
}

/// A contender's colour, the same in every chart.
fn colour(contender: &str) -> RGBColor {
    const OTHERS: [RGBColor; 4] = [
        RGBColor(0x2a, 0x9d, 0x7f),
        RGBColor(0xa8, 0x6b, 0xc4),
        RGBColor(0xc7, 0x5b, 0x6a),
        RGBColor(0x7f, 0x9a, 0x2f),
    ];
    match contender {
        "awa" => RGBColor(0x3d, 0x84, 0xd1),
        "plain table" => RGBColor(0xd9, 0x8a, 0x2b),
        "floor" => RGBColor(0x8f, 0x97, 0xa1),
        other => OTHERS[other.bytes().map(usize::from).sum::<usize>() % OTHERS.len()],
    }
}

/// How much there was, and what that is called.
fn amount(group: &Group<'_>) -> Option<(&'static str, f64)> {
    let found = |name: &&'static str| Some((*name, *group[0].figures.get(*name)?));
    AMOUNTS.iter().find_map(found).filter(|(_, amount)| *amount > 0.0)
}

/// The spread of a measure over runs. `None`: nobody measured it.
fn spread(group: &Group<'_>, measure: Measure) -> Option<Spread> {
    Spread::of(group.iter().map(|sample| measure.of(sample)).collect())
}

impl Panels {
    fn of(scenario: &str, has_latency: bool) -> Self {
        use Measure::{Figure, P50, P99, Rate, ServerCpu, Transactions, Wal};
        let (unit, shown) = match scenario {
            "prune" => ("row", vec![Figure("total ms"), Figure("exclusive ms"), ServerCpu]),
            "rollup" => ("delta", vec![Figure("total ms"), Figure("exclusive ms"), ServerCpu]),
            "carry" => ("job", vec![Figure("carries a failure"), Wal, ServerCpu]),
            "counts" => ("call", vec![P50, P99, ServerCpu]),
            "idle" => ("second", vec![Transactions, Wal, ServerCpu]),
            _ if has_latency => ("job", vec![Rate, P99, ServerCpu]),
            _ => ("job", vec![Rate, ServerCpu]),
        };
        Self { unit, shown }
    }

    /// The measures and their places, from left to right.
    fn columns(&self) -> impl Iterator<Item = (Measure, Column)> {
        let count = self.shown.len() as i32;
        let width = (WIDTH - 2 * MARGIN - GUTTER * (count - 1)) / count;
        self.shown.iter().enumerate().map(move |(nth, measure)| {
            let left = MARGIN + nth as i32 * (width + GUTTER);
            (*measure, Column { left, right: left + width })
        })
    }
}

impl Measure {
    fn of(self, sample: &Sample) -> f64 {
        let cost = &sample.cost;
        match self {
            Self::Rate => cost.rate(),
            Self::ServerCpu => cost.each(cost.server_cpu_us),
            Self::Wal => cost.each(cost.wal_bytes),
            Self::Transactions => cost.each(cost.transactions as f64),
            Self::P50 => sample.latency.map_or(f64::NAN, |latency| latency.p50),
            Self::P99 => sample.latency.map_or(f64::NAN, |latency| latency.p99),
            Self::Figure(name) => sample.figures.get(name).copied().unwrap_or(f64::NAN),
        }
    }

    fn name(self, unit: &str) -> String {
        match self {
            Self::Rate => format!("{unit}s a second"),
            Self::ServerCpu => format!("server CPU, µs a {unit}"),
            Self::Wal => format!("WAL, bytes a {unit}"),
            Self::Transactions => format!("transactions a {unit}"),
            Self::P50 => "median call, ms".to_owned(),
            Self::P99 => "99 of 100 calls within, ms".to_owned(),
            Self::Figure(name) => name.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Latency;
    use crate::meter::Cost;

    fn sample(scenario: &str, case: &str, contender: &str, seconds: f64) -> Sample {
        let cost = Cost { jobs: 1_000, seconds, server_cpu_us: seconds * 1e4, ..Cost::default() };
        Sample::new(scenario, case, contender, cost)
    }

    fn charted(samples: &[Sample]) -> String {
        let groups: Vec<Group<'_>> = samples.iter().map(|sample| vec![sample]).collect();
        draw(&samples[0].scenario, &groups).unwrap()
    }

    /// Every element is closed by its own name, and text holds no bare sign.
    fn check_well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some(start) = rest.find('<') {
            let text = &rest[..start];
            assert!(!text.contains('>'), "{text}");
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            let name = tag.trim_matches('/').split_whitespace().next().expect("a tag has a name");
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
                open.push(name);
            }
            rest = &rest[end + 1..];
        }
        assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    }

    #[test]
    fn bars_name_each_case_and_contender() {
        let svg = charted(&[
            sample("drain", "claims of 512, a < b & c", "awa", 0.01),
            sample("drain", "claims of 512, a < b & c", "plain table", 0.02),
            sample("drain", "claims of 1", "floor", 4.0),
        ]);
        check_well_formed(&svg);
        for name in
            ["claims of 512, a &lt; b &amp; c", "claims of 1", "awa", "plain table", "floor"]
        {
            assert!(svg.contains(name), "{name} is missing in {svg}");
        }
        for value in ["100,000", "50,000", "jobs a second", "server CPU, µs a job"] {
            assert!(svg.contains(value), "{value} is missing in {svg}");
        }
    }

    #[test]
    fn what_has_an_amount_becomes_a_line_and_the_rest_bars() {
        let latency =
            |p50| Latency { calls: 300, p50, p99: 2.0 * p50, p999: 3.0 * p50, max: 4.0 * p50 };
        let of = |case: &str, rows: f64| {
            sample("counts", case, "awa", 1.0)
                .with("retained rows", rows)
                .with_latency(Some(latency(rows / 1e4)))
        };
        let svg = charted(&[
            of("10,000 retained", 10_000.0),
            of("1,000,000 retained", 1_000_000.0),
            sample("counts", "2 queues", "awa", 1.0).with_latency(Some(latency(7.0))),
        ]);
        check_well_formed(&svg);
        assert!(svg.contains("<polyline"), "{svg}");
        for name in ["10,000", "1,000,000", "2 queues", "retained rows", "median call, ms"] {
            assert!(svg.contains(name), "{name} is missing in {svg}");
        }
    }

    #[test]
    fn nothing_lies_outside() {
        let long = "a case whose name is longer than a panel is wide, by quite a lot of characters";
        let svg = charted(&[sample("drain", long, "awa", 1e-9), sample("drain", "b", "awa", 1e9)]);
        let numbers = |name: &str| {
            let name = format!(" {name}=\"");
            let found = svg.split(&name).skip(1).map(|rest| rest.split('"').next().unwrap());
            found.map(|number| number.parse::<i32>().unwrap()).collect::<Vec<_>>()
        };
        let height = numbers("height")[0];
        assert!(numbers("x").iter().all(|x| (0..=WIDTH).contains(x)), "{svg}");
        assert!(numbers("y").iter().all(|y| (0..=height).contains(y)), "{svg}");
    }

    #[test]
    fn contenders_keep_their_colours() {
        let colours = ["awa", "plain table", "floor"].map(colour);
        assert!(colours[0] != colours[1] && colours[1] != colours[2] && colours[0] != colours[2]);
        assert_eq!(colour("awa, 4 queues"), colour("awa, 4 queues"));
    }
}
