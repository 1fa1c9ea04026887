//! How far a command has come, on standard error: bars for a person who watches, so only if that is a
//! terminal; and nothing at all if JSON or quiet is wanted.

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Often enough to look alive.
const TICK: Duration = Duration::from_millis(120);

/// Whether and how progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    shown: bool,
    told: bool,
}

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Jobs,
}

impl Progress {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self::on(stderr().is_terminal(), json, quiet)
    }

    fn on(terminal: bool, json: bool, quiet: bool) -> Self {
        let told = !json && !quiet;
        Self { shown: terminal && told, told }
    }

    /// Whether events are told in words, also to a log.
    pub(crate) fn is_told(self) -> bool {
        self.told
    }

    /// A bar up to `length`, or a line that moves where nobody knows how much there will be.
    pub(crate) fn bar(self, what: &'static str, length: Option<u64>, unit: Unit) -> ProgressBar {
        let target =
            if self.shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(length, target);
        bar.set_style(style(length.is_some(), unit));
        bar.set_prefix(what);
        if self.shown {
            bar.enable_steady_tick(TICK);
        }
        bar
    }
}

fn style(has_length: bool, unit: Unit) -> ProgressStyle {
    let template = match (has_length, unit) {
        (true, Unit::Bytes) => "{prefix} [{bar:16}] {bytes}/{total_bytes}, {eta} left {wide_msg}",
        (true, Unit::Jobs) => "{prefix} [{bar:16}] {human_pos}/{human_len}, {eta} left {wide_msg}",
        (false, Unit::Bytes) => "{spinner} {prefix} {bytes} {wide_msg}",
        (false, Unit::Jobs) => "{spinner} {prefix} {human_pos} {wide_msg}",
    };
    // A template of ours that does not parse is a bar without one, and a test that fails.
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    #[test]
    fn only_a_person_who_watches_sees_progress() {
        assert!(Progress::on(true, false, false).shown);
        assert!(Progress::on(false, false, false).is_told());
        for (terminal, json, quiet) in
            [(false, false, false), (true, true, false), (true, false, true)]
        {
            let progress = Progress::on(terminal, json, quiet);
            assert!(!progress.shown && progress.is_told() != (json || quiet));
            assert!(progress.bar("Reading", Some(1), Unit::Bytes).is_hidden());
        }
    }

    /// A terminal that keeps what is written to it.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            100
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A bar tells what it is of, how far it is and of how much, and its message; a line that moves
    /// all but of how much.
    #[test]
    fn a_bar_tells_how_far_it_is() {
        for (length, unit, expected) in [
            (Some(2_000), Unit::Jobs, vec!["Sending [===", "] 1,000/2,000, ", " left so far"]),
            (Some(2_048), Unit::Bytes, vec!["Sending [===", "] 1000 B/2.00 KiB, "]),
            (None, Unit::Jobs, vec![" Sending 1,000 so far"]),
            (None, Unit::Bytes, vec![" Sending 1000 B so far"]),
        ] {
            let paper = Paper::default();
            let bar = Progress::on(false, false, false).bar("Sending", length, unit);
            bar.set_draw_target(ProgressDrawTarget::term_like(Box::new(paper.clone())));
            bar.set_message("so far");
            bar.set_position(1_000);
            bar.tick();
            let drawn = paper.0.lock().unwrap().clone();
            assert!(expected.iter().all(|part| drawn.contains(part)), "{drawn:?}");
        }
    }
}
