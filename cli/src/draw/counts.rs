//! Counts of queues, before and after.

use awa::core::QueueCounts;

use super::{Paint, Style, shown, thousands};

const QUEUE_COLUMNS_MAX: usize = 20;

/// One row of the table.
struct Row {
    queue: String,
    state: &'static str,
    before: i64,
    after: i64,
}

/// A table of each queue's counts before and after with their difference. A state that is 0 both
/// times has no row; `total` stands last for each queue, and for several queues their sum follows.
/// At most [`super::COLUMNS`] wide while counts have nine digits.
pub(crate) fn counts(queues: &[(&str, QueueCounts, QueueCounts)], style: Style) -> String {
    let mut rows = Vec::new();
    let mut all = (QueueCounts::default(), QueueCounts::default());
    for (queue, before, after) in queues {
        rows.extend(rows_of(&shown(queue, QUEUE_COLUMNS_MAX, style), before, after));
        all = (sum(&all.0, before), sum(&all.1, after));
    }
    if queues.len() > 1 {
        rows.extend(rows_of("all queues", &all.0, &all.1));
    }
    table(&rows, style)
}

fn rows_of(queue: &str, before: &QueueCounts, after: &QueueCounts) -> Vec<Row> {
    let pairs = before.named().into_iter().zip(after.named());
    let counted = pairs.filter(|((_, before), (_, after))| (*before, *after) != (0, 0));
    let states = counted.map(|((state, before), (_, after))| (state, before, after));
    let total = ("total", before.total(), after.total());
    let mut name = queue.to_owned();
    let rows = states.chain([total]).map(|(state, before, after)| {
        // Only the first row of a queue bears its name.
        Row { queue: std::mem::take(&mut name), state, before, after }
    });
    rows.collect()
}

fn sum(a: &QueueCounts, b: &QueueCounts) -> QueueCounts {
    QueueCounts {
        available: a.available + b.available,
        scheduled: a.scheduled + b.scheduled,
        retryable: a.retryable + b.retryable,
        running: a.running + b.running,
        waiting_external: a.waiting_external + b.waiting_external,
        completed: a.completed + b.completed,
        failed: a.failed + b.failed,
        cancelled: a.cancelled + b.cancelled,
        pruned_other: a.pruned_other + b.pruned_other,
        pruned_failed: a.pruned_failed + b.pruned_failed,
    }
}

fn table(rows: &[Row], style: Style) -> String {
    let change = |row: &Row| match i128::from(row.after) - i128::from(row.before) {
        0 => "=".to_owned(),
        more @ 1.. => format!("+{}", thousands(more)),
        less @ ..0 => thousands(less),
    };
    let heads = ["queue", "state", "before", "after", "change"].map(str::to_owned);
    let cells: Vec<[String; 5]> = rows
        .iter()
        .map(|row| {
            let (before, after) = (thousands(row.before), thousands(row.after));
            [row.queue.clone(), row.state.to_owned(), before, after, change(row)]
        })
        .collect();
    let width = |column: usize| {
        let all = cells.iter().chain([&heads]);
        all.map(|row| row[column].chars().count()).max().unwrap_or(0)
    };
    let widths = [0, 1, 2, 3, 4].map(width);
    let line = |row: &[String; 5]| {
        let [queue, state, before, after, change] = row;
        let [q, s, b, a, c] = widths;
        format!("{queue:<q$}  {state:<s$}  {before:>b$}  {after:>a$}  {change:>c$}")
    };
    let mut lines = vec![style.paint(Paint::Bold, &line(&heads))];
    for (row, cells) in rows.iter().zip(&cells) {
        let text = line(cells);
        let is_total = row.state == "total";
        lines.push(if is_total { style.paint(Paint::Bold, &text) } else { text });
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ASCII, COLOUR, PLAIN};
    use super::*;

    /// `R026-23`, `R032-08`: every field has its row, what left the ring for good too.
    #[test]
    fn each_queue_shows_what_changed_and_its_total() {
        let before = QueueCounts { available: 1_258, ..QueueCounts::default() };
        let after = QueueCounts {
            running: 2,
            completed: 700,
            failed: 48,
            pruned_other: 504,
            pruned_failed: 4,
            ..QueueCounts::default()
        };
        let still = QueueCounts { failed: 7, cancelled: 1, ..QueueCounts::default() };
        let expected = "\
queue       state          before  after  change
mail        available       1,258      0  -1,258
            running             0      2      +2
            completed           0    700    +700
            failed              0     48     +48
            pruned_other        0    504    +504
            pruned_failed       0      4      +4
            total           1,258  1,258       =
reports     failed              7      7       =
            cancelled           1      1       =
            total               8      8       =
all queues  available       1,258      0  -1,258
            running             0      2      +2
            completed           0    700    +700
            failed              7     55     +48
            cancelled           1      1       =
            pruned_other        0    504    +504
            pruned_failed       0      4      +4
            total           1,266  1,266       =";
        let queues = [("mail", before, after), ("reports", still, still)];
        assert_eq!(counts(&queues, PLAIN), expected);
        assert_eq!(counts(&queues, ASCII), expected);
    }

    #[test]
    fn one_queue_needs_no_sum_and_an_empty_one_has_a_total() {
        let none = QueueCounts::default();
        let expected = "\
queue  state  before  after  change
mail   total       0      0       =";
        assert_eq!(counts(&[("mail", none, none)], PLAIN), expected);
    }

    /// A count that can't be negative is shown as it is: nothing is clamped.
    #[test]
    fn a_negative_count_is_shown() {
        let before = QueueCounts { scheduled: i64::MAX, ..QueueCounts::default() };
        let after = QueueCounts { scheduled: -3, ..QueueCounts::default() };
        let text = counts(&[("q", before, after)], PLAIN);
        assert!(text.contains("    -3  -9,223,372,036,854,775,810"), "{text}");
    }

    #[test]
    fn the_table_fits_a_terminal_and_colour_does_not_move_it() {
        let before = QueueCounts { waiting_external: 999_999_999, ..QueueCounts::default() };
        let after = QueueCounts { completed: 999_999_999, ..QueueCounts::default() };
        let name = "queue\u{1b}[31m".repeat(9);
        let queues = [(name.as_str(), before, after)];
        let text = counts(&queues, PLAIN);
        assert!(text.lines().all(|line| line.chars().count() <= super::super::COLUMNS), "{text}");
        let coloured = counts(&queues, COLOUR);
        assert_ne!(coloured, text);
        assert_eq!(coloured.replace("\u{1b}[1m", "").replace("\u{1b}[0m", ""), text);
    }
}
