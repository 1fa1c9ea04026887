//! Horizontal bars: a group a case, a bar a contender.

use anyhow::Result;

use super::canvas::{Anchor, Canvas, text_width};
use super::{Column, FAINT, Group, INK, MARGIN, Measure, Panels, colour, spread};
use crate::report::{Spread, short};

const HEAD: i32 = 26;
const CASE: i32 = 20;
const BAR: i32 = 13;
const BAR_GAP: i32 = 3;
const CASE_GAP: i32 = 10;
/// Above this ratio of the largest case to the smallest, a common scale shows nothing of the smallest.
const RATIO_MAX: f64 = 50.0;
const TEXT: i32 = 11;

pub(super) fn height(groups: &[&Group<'_>]) -> i32 {
    if groups.is_empty() {
        return 0;
    }
    let cases = cases(groups);
    let bars = cases.iter().map(|case| case.len() as i32 * (BAR + BAR_GAP)).sum::<i32>();
    HEAD + bars + cases.len() as i32 * (CASE + CASE_GAP)
}

/// Draws from `top` on. Gives where the next thing may begin.
pub(super) fn draw(
    canvas: &Canvas<'_>,
    top: i32,
    panels: &Panels,
    groups: &[&Group<'_>],
) -> Result<i32> {
    if groups.is_empty() {
        return Ok(top);
    }
    let cases = cases(groups);
    for (measure, column) in panels.columns() {
        let panel = Panel::new(measure, column, &cases);
        let mut head = measure.name(panels.unit);
        if panel.common.is_none() {
            head.push_str(" (each case to its own scale)");
        }
        canvas.text((column.left, top + HEAD / 2), 12, INK, Anchor::Left, &head)?;
        let mut y = top + HEAD;
        for case in &cases {
            y += CASE;
            let most = panel.common.unwrap_or_else(|| most(case, measure));
            for group in case {
                panel.bar(canvas, y, group, most)?;
                y += BAR + BAR_GAP;
            }
            y += CASE_GAP;
        }
    }
    let mut y = top + HEAD;
    for case in &cases {
        canvas.text((MARGIN, y + CASE / 2), 12, INK, Anchor::Left, &case[0][0].case)?;
        y += CASE + case.len() as i32 * (BAR + BAR_GAP) + CASE_GAP;
    }
    Ok(y)
}

/// Groups of the same case together, in the order in which cases were met.
fn cases<'a, 'b>(groups: &[&'a Group<'b>]) -> Vec<Vec<&'a Group<'b>>> {
    let mut cases: Vec<Vec<&Group<'_>>> = Vec::new();
    for group in groups {
        match cases.iter_mut().find(|case| case[0][0].case == group[0].case) {
            Some(case) => case.push(group),
            None => cases.push(vec![group]),
        }
    }
    cases
}

/// The largest median of a case, if it has a positive one.
fn most(case: &[&Group<'_>], measure: Measure) -> f64 {
    case.iter().filter_map(|group| spread(group, measure)).map(|s| s.median).fold(0.0, f64::max)
}

struct Panel {
    measure: Measure,
    column: Column,
    /// The longest bar's value, if all cases have the same scale.
    common: Option<f64>,
    /// How long that bar is.
    room: i32,
}

impl Panel {
    fn new(measure: Measure, column: Column, cases: &[Vec<&Group<'_>>]) -> Self {
        let each: Vec<f64> =
            cases.iter().map(|case| most(case, measure)).filter(|most| *most > 0.0).collect();
        let largest = each.iter().copied().fold(0.0, f64::max);
        let smallest = each.iter().copied().fold(f64::INFINITY, f64::min);
        // With one contender there is nothing to compare but cases.
        let alone = cases.iter().all(|case| case.len() == 1);
        let common = (alone || largest <= smallest * RATIO_MAX).then_some(largest);
        let values = cases.iter().flatten().filter_map(|group| spread(group, measure));
        let widest = values.map(|s| text_width(&short(s.median), TEXT)).max().unwrap_or(0);
        Self { measure, column, common, room: column.right - column.left - widest - 6 }
    }

    fn bar(&self, canvas: &Canvas<'_>, y: i32, group: &Group<'_>, most: f64) -> Result<()> {
        let left = self.column.left;
        let Some(Spread { median, least, most: highest }) = spread(group, self.measure) else {
            return canvas.text((left, y + BAR / 2), TEXT, FAINT, Anchor::Left, "–");
        };
        let at = |value: f64| {
            let part = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
            left + (part * f64::from(self.room)).round() as i32
        };
        // Something that small is still there.
        let end = at(median).max(left + 1);
        canvas.bar((left, y), (end, y + BAR), colour(&group[0].contender))?;
        if group.len() > 1 {
            canvas.line(vec![(at(least), y + BAR / 2), (at(highest), y + BAR / 2)], INK, 1)?;
        }
        let beside = end.max(if group.len() > 1 { at(highest) } else { end }) + 4;
        canvas.text((beside, y + BAR / 2), TEXT, INK, Anchor::Left, &short(median))
    }
}
