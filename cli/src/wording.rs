//! Words that several commands share: numbers of things, and what an operator is told about a retry of
//! failed jobs (`R032-09`, `R032-10`).

use awa::core::Fault;
use serde_json::{Value, json};

use crate::draw::thousands;

/// `1 job`, `1,200 jobs`, `0 jobs`: a number of things whose plural ends in s.
pub(crate) fn counted(n: impl Into<i128>, thing: &str) -> String {
    let n = n.into();
    format!("{} {thing}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// What `retry-failed` did, ready to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetryFailed {
    retried: i64,
    matched: i64,
    pruned_failed_count: Option<i64>,
}

impl RetryFailed {
    /// `retried` jobs of the `matched` ones that a scan before had found. `pruned_failed_count` is
    /// the queue's cumulative count of failures that left the ring past the floor; `None` for a
    /// retry by kind, since those counts know no kind.
    ///
    /// # Errors
    /// [`Fault::Negative`], naming the count: none of them can be.
    pub(crate) fn new(
        retried: i64,
        matched: i64,
        pruned_failed_count: Option<i64>,
    ) -> Result<Self, Fault> {
        let counts = [
            ("retried", retried),
            ("matched", matched),
            ("pruned_failed_count", pruned_failed_count.unwrap_or(0)),
        ];
        match counts.into_iter().find(|(_, value)| *value < 0) {
            Some((what, value)) => Err(Fault::Negative { what, value }),
            None => Ok(Self { retried, matched, pruned_failed_count }),
        }
    }

    /// Sentences for a person. Matched and raced are told apart only where they differ, and what
    /// was pruned only where something was.
    pub(crate) fn sentences(&self) -> String {
        let Self { retried, matched, .. } = *self;
        let mut text = match matched - retried {
            0 if matched == 0 => "No failed job matched; nothing was retried.".to_owned(),
            0 => format!("Retried {}.", failed_jobs(retried)),
            raced @ 1.. => format!(
                "Retried {} of the {} that matched; {} raced: retried, discarded or pruned by \
                 someone else in between.",
                thousands(retried),
                failed_jobs(matched),
                thousands(raced),
            ),
            more @ ..0 => format!(
                "Retried {}, {} more than the {} that matched at first.",
                failed_jobs(retried),
                thousands(-more),
                thousands(matched),
            ),
        };
        if let Some(pruned @ 1..) = self.pruned_failed_count {
            let (were, are) = if pruned == 1 { ("was", "is") } else { ("were", "are") };
            let rows = counted(pruned, "failed row");
            text.push_str(&format!(
                " {rows} {were} pruned past retention and {are} no longer retryable."
            ));
        }
        text
    }

    /// The same for a program: `retried`, `matched`, their difference `raced`, and
    /// `pruned_failed_count`, which is `null` for a retry by kind.
    pub(crate) fn to_json(self) -> Value {
        json!({
            "retried": self.retried,
            "matched": self.matched,
            "raced": self.matched - self.retried,
            "pruned_failed_count": self.pruned_failed_count,
        })
    }
}

fn failed_jobs(n: i64) -> String {
    counted(n, "failed job")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(retried: i64, matched: i64, pruned: Option<i64>) -> String {
        RetryFailed::new(retried, matched, pruned).unwrap().sentences()
    }

    #[test]
    fn one_is_not_many() {
        for (n, text) in [(0, "0 jobs"), (1, "1 job"), (2, "2 jobs"), (1_200, "1,200 jobs")] {
            assert_eq!(counted(n, "job"), text);
        }
    }

    /// `R032-10`: the matched/raced split is shown where the two differ, and only there.
    #[test]
    fn matched_and_raced_are_split_where_they_differ() {
        assert_eq!(told(0, 0, None), "No failed job matched; nothing was retried.");
        assert_eq!(told(1, 1, None), "Retried 1 failed job.");
        assert_eq!(told(1_200, 1_200, Some(0)), "Retried 1,200 failed jobs.");
        let raced = " raced: retried, discarded or pruned by someone else in between.";
        assert_eq!(
            told(10, 12, None),
            format!("Retried 10 of the 12 failed jobs that matched; 2{raced}")
        );
        assert_eq!(
            told(0, 1, None),
            format!("Retried 0 of the 1 failed job that matched; 1{raced}")
        );
        assert_eq!(
            told(5, 3, None),
            "Retried 5 failed jobs, 2 more than the 3 that matched at first."
        );
    }

    /// `R032-10`: N failed rows were pruned past retention, said where N > 0 and in the right number.
    #[test]
    fn what_was_pruned_past_retention_is_said_where_there_is_some() {
        assert_eq!(
            told(3, 3, Some(1)),
            "Retried 3 failed jobs. 1 failed row was pruned past retention and is no longer retryable."
        );
        assert_eq!(
            told(0, 0, Some(1_042)),
            "No failed job matched; nothing was retried. \
             1,042 failed rows were pruned past retention and are no longer retryable."
        );
        for none in [None, Some(0)] {
            assert!(!told(3, 3, none).contains("pruned"), "{none:?}");
        }
    }

    /// `R032-10`, `R032-09`: a program gets all figures, and `null` where a retry by kind has none.
    #[test]
    fn a_program_gets_every_figure() {
        let json = |retried, matched, pruned| {
            RetryFailed::new(retried, matched, pruned).unwrap().to_json().to_string()
        };
        assert_eq!(
            json(10, 12, Some(3)),
            r#"{"matched":12,"pruned_failed_count":3,"raced":2,"retried":10}"#
        );
        assert_eq!(
            json(2, 2, None),
            r#"{"matched":2,"pruned_failed_count":null,"raced":0,"retried":2}"#
        );
    }

    /// A count that can't be negative is reported and not clamped.
    #[test]
    fn a_negative_count_is_a_fault() {
        for (counts, what) in [
            ((-1, 0, None), "retried"),
            ((0, -1, None), "matched"),
            ((0, 0, Some(-1)), "pruned_failed_count"),
        ] {
            let (retried, matched, pruned) = counts;
            let fault = RetryFailed::new(retried, matched, pruned);
            assert_eq!(fault, Err(Fault::Negative { what, value: -1 }));
        }
    }
}
