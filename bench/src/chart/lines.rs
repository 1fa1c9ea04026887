//! Lines over an amount, both axes logarithmic: what grows with it climbs, what doesn't stays flat.

use anyhow::Result;

use super::canvas::{Anchor, Canvas};
use super::{Column, FAINT, Group, INK, MARGIN, Measure, Panels, amount, colour, spread};
use crate::report::short;

const HEAD: i32 = 26;
const VARIANT: i32 = 22;
const PLOT: i32 = 190;
const FOOT: i32 = 48;
const TEXT: i32 = 11;
/// Room for the numbers beside an axis.
const AXIS: i32 = 52;
/// And on the other side of a plot, for half of the last number.
const END: i32 = 24;

/// Lines that are shown together: what their cases are called without the amount.
struct Variant<'a, 'b> {
    name: String,
    groups: Vec<&'a Group<'b>>,
}

pub(super) fn height(groups: &[&Group<'_>]) -> i32 {
    let variants = variants(groups);
    let titles = if variants.len() > 1 { VARIANT } else { 0 };
    variants.len() as i32 * (titles + HEAD + PLOT + FOOT)
}

/// Draws from `top` on. Gives where the next thing may begin.
pub(super) fn draw(
    canvas: &Canvas<'_>,
    top: i32,
    panels: &Panels,
    groups: &[&Group<'_>],
) -> Result<i32> {
    let mut y = top;
    let variants = variants(groups);
    for variant in &variants {
        if variants.len() > 1 {
            canvas.text((MARGIN, y + VARIANT / 2), 13, INK, Anchor::Left, &variant.name)?;
            y += VARIANT;
        }
        for (measure, column) in panels.columns() {
            let head = measure.name(panels.unit);
            canvas.text((column.left, y + HEAD / 2), 12, INK, Anchor::Left, &head)?;
            if let Some(plot) = Plot::new(column, y + HEAD, measure, &variant.groups) {
                plot.axes(canvas)?;
                plot.lines(canvas, &variant.groups)?;
            }
        }
        y += HEAD + PLOT + FOOT;
    }
    Ok(y)
}

fn variants<'a, 'b>(groups: &[&'a Group<'b>]) -> Vec<Variant<'a, 'b>> {
    let mut variants: Vec<Variant<'_, '_>> = Vec::new();
    for group in groups {
        let number = amount(group).map_or(String::new(), |(_, amount)| short(amount));
        let words = group[0].case.replacen(&number, "", 1);
        let words: Vec<_> = words.split_whitespace().collect();
        let name = words.join(" ").trim_matches([',', ' ', ':']).to_owned();
        match variants.iter_mut().find(|variant| variant.name == name) {
            Some(variant) => variant.groups.push(group),
            None => variants.push(Variant { name, groups: vec![group] }),
        }
    }
    variants
}

/// From where to where an axis goes, in values and in pixels.
struct Axis {
    least: f64,
    most: f64,
    from: i32,
    to: i32,
}

impl Axis {
    /// `None`: nothing positive is to be shown.
    fn new(values: &[f64], room: f64, from: i32, to: i32) -> Option<Self> {
        let positive = || values.iter().copied().filter(|value| *value > 0.0);
        let least = positive().reduce(f64::min)?;
        let most = positive().reduce(f64::max)?;
        Some(Self { least: least / room, most: most * room, from, to })
    }

    fn at(&self, value: f64) -> i32 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + (part * f64::from(self.to - self.from)).round() as i32
    }

    /// Round values along it: powers of ten, and between them where these are few.
    fn marks(&self) -> Vec<f64> {
        let decades = (self.most / self.least).log10();
        let steps: &[f64] = if decades > 3.0 {
            &[1.0]
        } else if decades > 1.5 {
            &[1.0, 3.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let powers = self.least.log10().floor() as i32..=self.most.log10().ceil() as i32;
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
        all.filter(|mark| (self.least..=self.most).contains(mark)).collect()
    }
}

/// A round value with the digits that it has. Powers of ten are not quite themselves below one.
fn round(mark: f64) -> String {
    if mark >= 1_000.0 {
        short(mark)
    } else {
        let places = (-mark.log10()).ceil().max(0.0) as usize;
        format!("{mark:.places$}")
    }
}

struct Plot {
    measure: Measure,
    across: Axis,
    up: Axis,
    amounts: Vec<f64>,
    called: &'static str,
}

impl Plot {
    fn new(column: Column, top: i32, measure: Measure, groups: &[&Group<'_>]) -> Option<Self> {
        let mut amounts: Vec<f64> =
            groups.iter().filter_map(|group| amount(group)).map(|(_, amount)| amount).collect();
        amounts.sort_by(f64::total_cmp);
        amounts.dedup();
        let values: Vec<f64> =
            groups.iter().filter_map(|group| spread(group, measure)).map(|s| s.median).collect();
        let (called, _) = amount(groups.first()?)?;
        Some(Self {
            measure,
            across: Axis::new(&amounts, 1.15, column.left + AXIS, column.right - END)?,
            up: Axis::new(&values, 1.6, top + PLOT, top)?,
            amounts,
            called,
        })
    }

    fn axes(&self, canvas: &Canvas<'_>) -> Result<()> {
        let (left, right) = (self.across.from, self.across.to);
        let bottom = self.up.from;
        for mark in self.up.marks() {
            let y = self.up.at(mark);
            canvas.grid((left, y), (right, y), FAINT)?;
            canvas.text((left - 6, y), TEXT, INK, Anchor::Right, &round(mark))?;
        }
        canvas.line(vec![(left, bottom), (right, bottom)], INK, 1)?;
        let mut free = i32::MIN;
        for amount in &self.amounts {
            let (x, name) = (self.across.at(*amount), short(*amount));
            canvas.line(vec![(x, bottom), (x, bottom + 4)], INK, 1)?;
            let half = super::canvas::text_width(&name, TEXT) / 2;
            // One that would run into the one before stands below it.
            let y = if x - half < free { bottom + 26 } else { bottom + 13 };
            free = if y == bottom + 13 { x + half + 4 } else { free };
            canvas.text((x, y), TEXT, INK, Anchor::Centre, &name)?;
        }
        let middle = i32::midpoint(left, right);
        canvas.text((middle, bottom + 39), TEXT, INK, Anchor::Centre, self.called)
    }

    fn lines(&self, canvas: &Canvas<'_>, groups: &[&Group<'_>]) -> Result<()> {
        let mut contenders: Vec<&str> = Vec::new();
        for group in groups {
            if !contenders.contains(&&*group[0].contender) {
                contenders.push(&group[0].contender);
            }
        }
        for contender in contenders {
            let colour = colour(contender);
            let mut points = Vec::new();
            for group in groups.iter().filter(|group| group[0].contender == contender) {
                let found = amount(group).zip(spread(group, self.measure));
                if let Some(((_, amount), spread)) = found.filter(|(_, s)| s.median > 0.0) {
                    let x = self.across.at(amount);
                    let within = |value: f64| self.up.at(value.clamp(self.up.least, self.up.most));
                    points.push((x, self.up.at(spread.median)));
                    canvas.line(
                        vec![(x, within(spread.least)), (x, within(spread.most))],
                        colour,
                        1,
                    )?;
                }
            }
            points.sort_unstable();
            for point in &points {
                canvas.dot(*point, colour)?;
            }
            canvas.line(points, colour, 2)?;
        }
        Ok(())
    }
}
