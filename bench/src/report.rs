//! What a run found: medians with their spread, ratios to the baselines, as a table and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

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
    /// How long each unit took, if that was asked.
    pub(crate) latency: Option<Latency>,
    /// Figures of this scenario's own, by name with unit.
    pub(crate) figures: BTreeMap<String, f64>,
}

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Collects times up to an hour with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    // The bounds are legal: the constructor refuses others.
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("legal bounds")
}

impl Latency {
    /// Of a histogram of microseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: histogram.max() as f64 / 1000.0 }
    }
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

    pub(crate) fn with_latency(mut self, latency: Latency) -> Self {
        self.latency = Some(latency);
        self
    }

    pub(crate) fn with(mut self, name: &str, value: f64) -> Self {
        self.figures.insert(name.to_owned(), value);
        self
    }
}

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
        text.push('\n');
        let groups = self.groups();
        let mut scenarios: Vec<&str> = groups.iter().map(|group| &*group[0].scenario).collect();
        scenarios.dedup();
        for scenario in scenarios {
            let of_it: Vec<_> = groups.iter().filter(|g| g[0].scenario == scenario).collect();
            let _ = write!(text, "\n{scenario}\n{}\n", self.table(&of_it));
        }
        text
    }

    fn table(&self, groups: &[&Vec<&Sample>]) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let latency = groups.iter().any(|group| group[0].latency.is_some());
        let mut head = vec![
            "case",
            "contender",
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
        ];
        if latency {
            head.extend(["p50 ms", "p99", "p99.9"]);
        }
        head.push("");
        table.set_header(head);
        for group in groups {
            table.add_row(self.row(group, latency));
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            let last = if latency { 16 } else { 13 };
            if place > 1 && place < last {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    fn row(&self, group: &[&Sample], latency: bool) -> Vec<String> {
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
        if latency {
            let of = |f: fn(&Latency) -> f64| median(&|s| s.latency.as_ref().map_or(f64::NAN, f));
            row.extend([of(|l| l.p50), of(|l| l.p99), of(|l| l.p999)]);
        }
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
