//! What a run found: medians with their spread, ratios to the baselines, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::calls::{Call, Calls, Latency};
use crate::lab::Conditions;
use crate::meter::Cost;

/// One measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// The question.
    pub(crate) scenario: String,
    /// The circumstances.
    pub(crate) case: String,
    /// Who answered.
    pub(crate) contender: String,
    /// What it cost.
    pub(crate) cost: Cost,
    /// How long each call took; what a call is, the scenario's note says. `None`: the bench made none.
    pub(crate) latency: Option<Latency>,
    /// Figures of this scenario's own, by name with unit.
    pub(crate) figures: BTreeMap<String, f64>,
}

impl Sample {
    pub(crate) fn new(
        scenario: &str,
        case: impl Into<String>,
        contender: &str,
        cost: Cost,
    ) -> Self {
        Self {
            scenario: scenario.to_owned(),
            case: case.into(),
            contender: contender.to_owned(),
            cost,
            latency: None,
            figures: BTreeMap::new(),
        }
    }

    /// With the times of its calls. `None`: there were none.
    pub(crate) fn with_latency(mut self, latency: Option<Latency>) -> Self {
        self.latency = latency;
        self
    }

    /// With the times of one kind of call as its latency; those of other kinds are figures.
    pub(crate) fn with_calls(mut self, of: Call, calls: &Calls) -> Self {
        self.latency = calls.latencies().get(&of).copied();
        self.figures.extend(calls.figures(of));
        self
    }

    pub(crate) fn with(mut self, name: &str, value: f64) -> Self {
        self.figures.insert(name.to_owned(), value);
        self
    }
}

/// What holds for all tables.
const HOW_TO_READ: &str = "
Medians of the runs; server, client, WAL, records, images, transactions and dead rows are those of one unit
(a job unless said otherwise). p50, p99 and p99.9 are of one run's calls, from asked to answered by this
process's clock; of fewer than a thousand calls the last is the slowest.
";

/// Everything of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) conditions: Conditions,
    pub(crate) samples: Vec<Sample>,
}

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match values.len() {
            0 => return None,
            n if n % 2 == 1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        };
        Some(Self { median, least: values[0], most: values[values.len() - 1] })
    }
}

impl Report {
    /// Samples of the same question, circumstances and contender, in the order they were first met.
    pub(crate) fn groups(&self) -> Vec<Vec<&Sample>> {
        let mut groups: Vec<Vec<&Sample>> = Vec::new();
        for sample in &self.samples {
            let alike = groups.iter_mut().find(|group| {
                group[0].scenario == sample.scenario
                    && group[0].case == sample.case
                    && group[0].contender == sample.contender
            });
            match alike {
                Some(group) => group.push(sample),
                None => groups.push(vec![sample]),
            }
        }
        groups
    }

    /// Median rate of `contender` under the same circumstances as `sample`.
    fn rate_of(&self, contender: &str, sample: &Sample) -> Option<f64> {
        let same = self.samples.iter().filter(|other| {
            other.scenario == sample.scenario
                && other.case == sample.case
                && other.contender == contender
        });
        Spread::of(same.map(|other| other.cost.rate()).collect()).map(|spread| spread.median)
    }

    /// The report as a person reads it.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n{} cores;", self.conditions.server, self.conditions.cores);
        for (name, value) in &self.conditions.settings {
            let _ = write!(text, " {name}={value}");
        }
        text.push_str(HOW_TO_READ);
        let groups = self.groups();
        let mut scenarios: Vec<&str> = groups.iter().map(|group| &*group[0].scenario).collect();
        scenarios.dedup();
        for scenario in scenarios {
            let of_it: Vec<_> = groups.iter().filter(|g| g[0].scenario == scenario).collect();
            let note = crate::scenario::note(scenario);
            let _ = write!(text, "\n{scenario}: {note}\n{}\n", self.table(&of_it));
        }
        text
    }

    fn table(&self, groups: &[&Vec<&Sample>]) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let head = [
            "case",
            "contender",
            "runs",
            "/s",
            "spread",
            "× plain",
            "× floor",
            "server µs",
            "client µs",
            "WAL B",
            "records",
            "images B",
            "tx",
            "dead",
            "calls",
            "p50 ms",
            "p99",
            "p99.9",
            "",
        ];
        table.set_header(head);
        for group in groups {
            table.add_row(self.row(group));
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            if place > 1 && place < head.len() - 1 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn row(&self, group: &[&Sample]) -> Vec<String> {
        let first = group[0];
        let of = |value: &dyn Fn(&Sample) -> f64| {
            Spread::of(group.iter().map(|sample| value(sample)).collect())
        };
        let median =
            |value: &dyn Fn(&Sample) -> f64| of(value).map_or(String::new(), |s| short(s.median));
        let rate = of(&|s| s.cost.rate());
        let ratio = |contender: &str| {
            let theirs = self.rate_of(contender, first)?;
            (contender != first.contender).then_some(())?;
            Some(format!("{:.2}", rate?.median / theirs))
        };
        let mut row = vec![
            first.case.clone(),
            first.contender.clone(),
            group.len().to_string(),
            rate.map_or(String::new(), |s| short(s.median)),
            rate.filter(|_| group.len() > 1)
                .map_or(String::new(), |s| format!("{}–{}", short(s.least), short(s.most))),
            ratio("plain table").unwrap_or_default(),
            ratio("floor").unwrap_or_default(),
            median(&|s| s.cost.each(s.cost.server_cpu_us)),
            median(&|s| s.cost.each(s.cost.client_cpu_us)),
            median(&|s| s.cost.each(s.cost.wal_bytes)),
            median(&|s| s.cost.each(s.cost.wal_records)),
            median(&|s| s.cost.each(s.cost.page_image_bytes)),
            median(&|s| s.cost.each(s.cost.transactions as f64)),
            median(&|s| s.cost.dead_each()),
        ];
        let of = |f: fn(&Latency) -> f64| median(&|s| s.latency.as_ref().map_or(f64::NAN, f));
        let calls = first.latency.map_or(String::new(), |latency| latency.calls.to_string());
        row.extend([calls, of(|l| l.p50), of(|l| l.p99), of(|l| l.p999)]);
        row.push(figures(group));
        row
    }
}

/// Figures of a scenario's own: medians, name by name.
fn figures(group: &[&Sample]) -> String {
    let mut text = Vec::new();
    for name in group[0].figures.keys() {
        let values = group.iter().filter_map(|sample| sample.figures.get(name).copied());
        if let Some(spread) = Spread::of(values.collect()) {
            text.push(format!("{name} {}", short(spread.median)));
        }
    }
    text.join(", ")
}

/// Three digits and thousands apart.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        let mut digits = format!("{:.0}", value.abs());
        let mut place = digits.len();
        while place > 3 {
            place -= 3;
            digits.insert(place, ',');
        }
        if value < 0.0 { format!("-{digits}") } else { digits }
    } else if size >= 100.0 || value == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.01 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let spread =
            |values: &[f64]| Spread::of(values.to_vec()).map(|s| (s.least, s.median, s.most));
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((1.0, 2.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0]), Some((1.0, 2.5, 4.0)));
        assert_eq!(spread(&[f64::NAN]), None);
    }

    #[test]
    fn a_row_says_how_many_runs_and_calls_it_is_of() {
        let latency = Latency { calls: 41, p50: 11.25, p99: 22.5, p999: 33.75, max: 44.0 };
        let sample = |contender: &str, latency: Option<Latency>| {
            let cost = Cost { jobs: 10, seconds: 1.0, ..Cost::default() };
            Sample::new("drain", "a case", contender, cost).with_latency(latency)
        };
        let conditions = Conditions { server: "a server".into(), settings: vec![], cores: 2 };
        let samples =
            vec![sample("awa", Some(latency)), sample("awa", Some(latency)), sample("floor", None)];
        let text = Report { conditions, samples }.text();
        let cells = |contender: &str| {
            let row = text
                .lines()
                .find(|line| line.contains("a case") && line.contains(contender))
                .expect("a row");
            row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let awa = cells(" awa ");
        assert_eq!(awa[3], "2", "runs: {text}");
        assert!(awa.ends_with(&["41", "11.2", "22.5", "33.8"].map(str::to_owned)), "{text}");
        let floor = cells(" floor ");
        assert_eq!((&*floor[3], floor.last().map(|last| &**last)), ("1", Some("0")), "{text}");
        assert!(text.contains(&format!("drain: {}", crate::scenario::note("drain"))), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        let cases =
            [(0.0, "0"), (0.0012, "0.0012"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(1_234_567.0), "1,234,567");
        assert_eq!(short(-1234.0), "-1,234");
    }
}
