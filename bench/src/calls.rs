//! How long calls took, as their caller sees them: from when a call was asked to when it was answered.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Which call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// One transaction of a producer.
    Enqueue,
    /// One claim.
    Claim,
    /// The end of one claim's jobs.
    Complete,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Claim => "claim",
            Self::Complete => "complete",
        }
    }
}

/// Times in milliseconds, and of how many calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// With fewer than a thousand of them the last percentiles are the slowest call.
    pub(crate) calls: u64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

/// Times of one kind. Clones add to the same ones; what one task records costs it an uncontended lock.
#[derive(Clone)]
pub(crate) struct Times(Arc<Mutex<Histogram<u64>>>);

impl Times {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(histogram())))
    }

    /// To the microsecond; what takes less counts as one.
    pub(crate) fn record(&self, took: Duration) {
        // The histogram holds an hour, and no call of a bench that is worth reading takes longer.
        self.held().saturating_record((took.as_micros() as u64).max(1));
    }

    /// Makes a call and records how long it took.
    pub(crate) async fn time<T>(&self, call: impl Future<Output = T>) -> T {
        let asked = Instant::now();
        let answer = call.await;
        self.record(asked.elapsed());
        answer
    }

    /// `None` if nothing was recorded.
    pub(crate) fn latency(&self) -> Option<Latency> {
        Latency::of(&self.held())
    }

    fn held(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to an hour with three digits, in microseconds.
fn histogram() -> Histogram<u64> {
    // The bounds are legal: the constructor refuses others.
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("legal bounds")
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
        (!histogram.is_empty()).then(|| Self {
            calls: histogram.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1000.0,
        })
    }
}

/// The calls of a measurement. Clones add to the same ones.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<(Call, Times)>>>);

impl Calls {
    /// Where one more task records its calls of a kind.
    pub(crate) fn of(&self, call: Call) -> Times {
        let times = Times::new();
        self.held().push((call, times.clone()));
        times
    }

    /// What each kind of call took, all tasks together. Kinds that nobody called are left out.
    pub(crate) fn latencies(&self) -> BTreeMap<Call, Latency> {
        let mut merged: BTreeMap<Call, Histogram<u64>> = BTreeMap::new();
        for (call, times) in &*self.held() {
            let all = merged.entry(*call).or_insert_with(histogram);
            // Both have the same bounds.
            all.add(&*times.held()).expect("equal bounds");
        }
        merged.iter().filter_map(|(call, all)| Some((*call, Latency::of(all)?))).collect()
    }

    /// The same but for one kind, as figures by name with unit.
    pub(crate) fn figures(&self, but: Call) -> Vec<(String, f64)> {
        let others = self.latencies().into_iter().filter(|(call, _)| *call != but);
        let figures = others.flat_map(|(call, latency)| {
            let name = call.name();
            [("p50", latency.p50), ("p99", latency.p99), ("p99.9", latency.p999)]
                .map(|(part, value)| (format!("{name} {part} ms"), value))
        });
        figures.collect()
    }

    fn held(&self) -> MutexGuard<'_, Vec<(Call, Times)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_merged_and_kinds_kept_apart() {
        let calls = Calls::default();
        let (one, two, end) =
            (calls.of(Call::Claim), calls.of(Call::Claim), calls.of(Call::Complete));
        for ms in 1..=99 {
            one.record(Duration::from_millis(ms));
        }
        two.record(Duration::from_millis(1_000));
        end.record(Duration::from_millis(7));
        let latencies = calls.latencies();
        let claim = latencies[&Call::Claim];
        assert_eq!(claim.calls, 100);
        for (is, near) in [(claim.p50, 50.0), (claim.p99, 99.0), (claim.p999, 1_000.0)] {
            assert!((is - near).abs() <= near / 100.0, "{is} is not {near}");
        }
        let figures = calls.figures(Call::Claim);
        let names: Vec<_> = figures.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["complete p50 ms", "complete p99 ms", "complete p99.9 ms"]);
    }

    #[test]
    fn what_nobody_called_has_no_latency() {
        let calls = Calls::default();
        let times = calls.of(Call::Enqueue);
        assert!(calls.latencies().is_empty());
        assert_eq!(times.latency(), None);
    }

    #[tokio::test]
    async fn a_call_is_timed_until_it_is_answered() {
        let times = Times::new();
        let pause = Duration::from_millis(20);
        assert_eq!(
            times
                .time(async {
                    tokio::time::sleep(pause).await;
                    5
                })
                .await,
            5
        );
        assert!(times.latency().is_some_and(|latency| latency.p50 >= 19.9));
    }
}
