//! A ring as a strip of cells.

use awa::core::{RingView, Slot, SlotLoad, SlotState, SlotView};

use super::{COLUMNS, Paint, Style, human_bytes};

const LABEL_COLUMNS: usize = 10;
const MARK_COLUMNS: usize = 3;

/// What a cell says of its slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Face {
    Open,
    Sealed,
    /// Sealed, and all that is left are failures that a prune now would carry.
    FailuresOnly,
    Pruned,
    /// Pruned, and a slow producer has dropped rows since.
    LateRows,
}

impl Face {
    const ALL: [Self; 5] =
        [Self::Open, Self::Sealed, Self::FailuresOnly, Self::Pruned, Self::LateRows];

    fn of(slot: &SlotView, load: Option<&SlotLoad>) -> Self {
        let has_rows = load.is_some_and(|l| l.has_droppable || l.carried_hint > 0);
        let only_failures = load.is_some_and(|l| l.carried_hint > 0 && !l.has_droppable);
        match slot.state {
            SlotState::Open => Self::Open,
            SlotState::Sealed if only_failures => Self::FailuresOnly,
            SlotState::Sealed => Self::Sealed,
            SlotState::Pruned if has_rows => Self::LateRows,
            SlotState::Pruned => Self::Pruned,
        }
    }

    const fn mark(self, style: Style) -> &'static str {
        match (self, style.unicode) {
            (Self::Open, true) => "▓▓▓",
            (Self::Open, false) => "###",
            (Self::Sealed, true) => "░░░",
            (Self::Sealed, false) => "===",
            (Self::FailuresOnly, true) => "▒▒▒",
            (Self::FailuresOnly, false) => "=F=",
            (Self::Pruned, true) => " · ",
            (Self::Pruned, false) => " . ",
            (Self::LateRows, _) => " + ",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Sealed => "sealed",
            Self::FailuresOnly => "sealed, kept failures only",
            Self::Pruned => "pruned",
            Self::LateRows => "pruned, late rows",
        }
    }

    const fn paint(self) -> Paint {
        match self {
            Self::Open => Paint::Green,
            Self::Sealed => Paint::Yellow,
            Self::FailuresOnly => Paint::Red,
            Self::Pruned | Self::LateRows => Paint::Dim,
        }
    }
}

/// The ring: a heading, each slot with its generation and state, and how full it is as far as
/// `loads` tell (which may lack slots, or be empty). At most [`COLUMNS`] wide: a ring of more slots
/// than fit is broken into strips of even length.
pub(crate) fn ring(view: &RingView, loads: &[SlotLoad], style: Style) -> String {
    let mut lines = vec![style.paint(Paint::Bold, &heading(view))];
    let cell = cell_columns(view);
    let fit = ((COLUMNS - LABEL_COLUMNS) / cell).max(1);
    let strips = view.slots.len().div_ceil(fit).max(1);
    for slots in view.slots.chunks(view.slots.len().div_ceil(strips).max(1)) {
        lines.extend(strip(slots, loads, cell, style));
    }
    lines.push(legend(view, loads, style));
    lines.extend(scale(loads, style));
    lines.join("\n")
}

fn heading(view: &RingView) -> String {
    let count = |state| view.slots.iter().filter(|s| s.state == state).count();
    let (open, sealed) = (count(SlotState::Open), count(SlotState::Sealed));
    let pruned = view.pruned_count();
    let next = match view.next_pruned() {
        Some(next) => format!("{} opens next", next.slot),
        None => "full: nothing can open".to_owned(),
    };
    format!("{} ring: {open} open, {sealed} sealed, {pruned} pruned; {next}", view.ring)
}

/// Columns of one cell, the blank before it included.
fn cell_columns(view: &RingView) -> usize {
    let digits = |n: i64| n.to_string().len();
    let longest = |s: &SlotView| digits(s.slot.0.into()).max(digits(s.generation.0));
    1 + view.slots.iter().map(longest).max().unwrap_or(0).max(MARK_COLUMNS)
}

fn strip(slots: &[SlotView], loads: &[SlotLoad], cell: usize, style: Style) -> Vec<String> {
    let row = |label: &str, text: &dyn Fn(&SlotView) -> (String, Paint)| {
        let cells = slots.iter().map(|slot| {
            let (text, paint) = text(slot);
            style.paint(paint, &format!("{text:>cell$}"))
        });
        let line = format!("{label:<LABEL_COLUMNS$}{}", cells.collect::<String>());
        line.trim_end().to_owned()
    };
    let mut rows = vec![
        row("slot", &|s| (s.slot.0.to_string(), Paint::Dim)),
        row("generation", &|s| (s.generation.0.to_string(), Paint::Dim)),
        row("state", &|s| {
            let face = Face::of(s, load_of(loads, s.slot));
            (face.mark(style).to_owned(), face.paint())
        }),
    ];
    if !loads.is_empty() {
        let fullest = loads.iter().map(|l| l.bytes).max().unwrap_or(0);
        rows.push(row("bytes", &|s| {
            let bar =
                load_of(loads, s.slot).map_or("?".to_owned(), |l| bar(l.bytes, fullest, style));
            (bar, Paint::Green)
        }));
    }
    rows
}

fn load_of(loads: &[SlotLoad], slot: Slot) -> Option<&SlotLoad> {
    loads.iter().find(|l| l.slot == slot)
}

/// A bar of the height, or in ASCII the length, of `bytes` beside `fullest`: anything above nothing
/// shows.
fn bar(bytes: i64, fullest: i64, style: Style) -> String {
    let step_of = |steps: i128| {
        let steps_up = (i128::from(bytes) * steps + i128::from(fullest) - 1) / i128::from(fullest);
        steps_up as usize
    };
    match (bytes, style.unicode) {
        (..0, _) => "?".to_owned(),
        (0, _) => String::new(),
        (1.., true) => {
            ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"][step_of(8) - 1].repeat(MARK_COLUMNS)
        }
        (1.., false) => format!("{:<MARK_COLUMNS$}", "#".repeat(step_of(MARK_COLUMNS as i128))),
    }
}

/// The marks that occur, each with its words.
fn legend(view: &RingView, loads: &[SlotLoad], style: Style) -> String {
    let faces: Vec<_> =
        view.slots.iter().map(|slot| Face::of(slot, load_of(loads, slot.slot))).collect();
    let seen = Face::ALL.into_iter().filter(|face| faces.contains(face));
    let indent = " ".repeat(LABEL_COLUMNS + 1);
    let (mut legend, mut taken) = (indent.clone(), indent.len());
    for face in seen {
        let mark = face.mark(style).trim();
        let columns = mark.chars().count() + 1 + face.words().len() + 2;
        if taken + columns - 2 > COLUMNS {
            legend = format!("{}\n{indent}", legend.trim_end());
            taken = indent.len();
        }
        legend.push_str(&format!("{} {}  ", style.paint(face.paint(), mark), face.words()));
        taken += columns;
    }
    legend.trim_end().to_owned()
}

/// What the highest bar stands for, where there are bars.
fn scale(loads: &[SlotLoad], style: Style) -> Option<String> {
    let fullest = loads.iter().map(|l| l.bytes).max().filter(|bytes| *bytes > 0)?;
    let total = loads.iter().fold(0_i64, |sum, l| sum.saturating_add(l.bytes));
    let (fullest, total) = (human_bytes(fullest), human_bytes(total));
    let mark = if style.unicode { "███" } else { "###" };
    Some(format!("{:<LABEL_COLUMNS$} {mark} = {fullest} on disk; {total} in all", ""))
}

#[cfg(test)]
mod tests {
    use awa::core::{Generation, Instant, Ring, Segment};

    use super::super::tests::{ASCII, COLOUR, PLAIN};
    use super::*;

    /// A queue ring whose slots have these generations and states: `o`, `s` or `p`.
    fn view(slots: &[(i64, char)]) -> RingView {
        let at = Instant::from_unix_us(0);
        let slots: Vec<_> = slots
            .iter()
            .zip(0..)
            .map(|(&(generation, state), slot)| SlotView {
                slot: Slot(slot),
                generation: Generation(generation),
                state: match state {
                    'o' => SlotState::Open,
                    's' => SlotState::Sealed,
                    'p' => SlotState::Pruned,
                    other => panic!("{other}"),
                },
                opened_at: at,
                sealed_at: (state == 's').then_some(at),
            })
            .collect();
        let open = slots.iter().find(|s| s.state == SlotState::Open).unwrap().segment();
        let current = Segment { slot: open.slot, generation: open.generation };
        RingView { ring: Ring::Queue, now: at, current, slots }
    }

    fn load(slot: i32, bytes: i64, has_rows: bool, has_droppable: bool) -> SlotLoad {
        let carried_hint = i64::from(has_rows && !has_droppable);
        let (droppable_hint, newest_fact_at) = (0, None);
        SlotLoad {
            slot: Slot(slot),
            bytes,
            has_droppable,
            droppable_hint,
            carried_hint,
            newest_fact_at,
        }
    }

    fn sixteen() -> RingView {
        let generations = [98, 99, 100, 101, 102, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97];
        let states = "sssopppppppppsss".chars();
        // Slot 4 is ahead of the open one: it was opened last round.
        view(&generations.into_iter().zip(states).collect::<Vec<_>>())
    }

    fn loads_of_sixteen() -> Vec<SlotLoad> {
        let pruned = (4..13).map(|slot| load(slot, 0, slot == 6, false));
        let mut loads = vec![
            load(0, 1_300_000, true, true),
            load(1, 1_048_576, true, true),
            load(2, 524_288, true, true),
            load(3, 8_192, true, true),
            load(13, 40_960, true, false),
            load(14, 700_000, true, true),
            load(15, 900_000, true, true),
        ];
        loads.extend(pruned);
        loads
    }

    #[test]
    fn the_ring_is_drawn() {
        let expected = "\
queue ring: 1 open, 6 sealed, 9 pruned; slot 4 opens next
slot         0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15
generation  98  99 100 101 102  87  88  89  90  91  92  93  94  95  96  97
state      ░░░ ░░░ ░░░ ▓▓▓  ·   ·   +   ·   ·   ·   ·   ·   ·  ▒▒▒ ░░░ ░░░
bytes      ███ ▇▇▇ ▄▄▄ ▁▁▁                                     ▁▁▁ ▅▅▅ ▆▆▆
           ▓▓▓ open  ░░░ sealed  ▒▒▒ sealed, kept failures only  · pruned
           + pruned, late rows
           ███ = 1.2 MiB on disk; 4.3 MiB in all";
        assert_eq!(ring(&sixteen(), &loads_of_sixteen(), PLAIN), expected);
    }

    #[test]
    fn ascii_will_do() {
        let expected = "\
queue ring: 1 open, 6 sealed, 9 pruned; slot 4 opens next
slot         0   1   2   3   4   5   6   7   8   9  10  11  12  13  14  15
generation  98  99 100 101 102  87  88  89  90  91  92  93  94  95  96  97
state      === === === ###  .   .   +   .   .   .   .   .   .  =F= === ===
bytes      ### ### ##  #                                       #   ##  ###
           ### open  === sealed  =F= sealed, kept failures only  . pruned
           + pruned, late rows
           ### = 1.2 MiB on disk; 4.3 MiB in all";
        assert_eq!(ring(&sixteen(), &loads_of_sixteen(), ASCII), expected);
    }

    #[test]
    fn a_ring_without_loads_has_no_bars_and_one_without_room_says_so() {
        let full = view(&[(7, 's'), (8, 'o'), (6, 's')]);
        let expected = "\
queue ring: 1 open, 2 sealed, 0 pruned; full: nothing can open
slot         0   1   2
generation   7   8   6
state      ░░░ ▓▓▓ ░░░
           ▓▓▓ open  ░░░ sealed";
        assert_eq!(ring(&full, &[], PLAIN), expected);
    }

    #[test]
    fn a_slot_without_a_load_is_not_called_empty() {
        let text = ring(&view(&[(1, 'o'), (0, 'p')]), &[load(0, 5, true, true)], PLAIN);
        assert!(text.contains("\nbytes      ███   ?\n"), "{text}");
        let text = ring(&view(&[(1, 'o'), (0, 'p')]), &[load(0, 0, false, false)], PLAIN);
        assert!(text.contains("\nbytes            ?\n"), "{text}");
    }

    #[test]
    fn more_slots_than_fit_make_strips_of_even_length() {
        let mut slots = vec![(1_234_567, 'p'); 20];
        slots[0].1 = 'o';
        let expected = "\
queue ring: 1 open, 0 sealed, 19 pruned; slot 1 opens next
slot             0       1       2       3       4       5       6
generation 1234567 1234567 1234567 1234567 1234567 1234567 1234567
state          ▓▓▓      ·       ·       ·       ·       ·       ·
slot             7       8       9      10      11      12      13
generation 1234567 1234567 1234567 1234567 1234567 1234567 1234567
state           ·       ·       ·       ·       ·       ·       ·
slot            14      15      16      17      18      19
generation 1234567 1234567 1234567 1234567 1234567 1234567
state           ·       ·       ·       ·       ·       ·
           ▓▓▓ open  · pruned";
        assert_eq!(ring(&view(&slots), &[], PLAIN), expected);
    }

    #[test]
    fn it_fits_a_terminal_and_colour_does_not_move_it() {
        let (view, loads) = (sixteen(), loads_of_sixteen());
        for style in [PLAIN, ASCII] {
            let text = ring(&view, &loads, style);
            assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        }
        let mut coloured = ring(&view, &loads, COLOUR);
        for code in [0, 1, 2, 31, 32, 33] {
            coloured = coloured.replace(&format!("\u{1b}[{code}m"), "");
        }
        let trimmed = coloured.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        assert_eq!(trimmed, ring(&view, &loads, PLAIN));
    }
}
