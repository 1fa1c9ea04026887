//! Claim and complete what lies ready, by storage calls: batch sizes, lanes, large args, a pinned snapshot,
//! held failures.

use anyhow::Result;

use crate::calls::Call;
use crate::contender::{Contender, Floor, Ours, Plain};
use crate::report::Sample;
use crate::scenario::{Backlog, Bench, SMALL, drained, fill};

pub(crate) const SCENARIO: &str = "drain";
pub(crate) const NOTE: &str = "a call is one claim; completions are beside it.";

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    queues: usize,
    batch: usize,
    bytes: usize,
    /// The share of the bench's jobs that this case drains: one in so many.
    share: u64,
    pinned: bool,
}

const CASES: [Case; 7] = [
    Case { name: "claims of 512", queues: 1, batch: 512, bytes: SMALL, share: 1, pinned: false },
    Case {
        name: "claims of 512, a snapshot pinned",
        queues: 1,
        batch: 512,
        bytes: SMALL,
        share: 1,
        pinned: true,
    },
    Case { name: "claims of 64", queues: 1, batch: 64, bytes: SMALL, share: 2, pinned: false },
    Case { name: "claims of 1", queues: 1, batch: 1, bytes: SMALL, share: 50, pinned: false },
    Case {
        name: "claims of 512, 4 queues",
        queues: 4,
        batch: 512,
        bytes: SMALL,
        share: 1,
        pinned: false,
    },
    Case {
        name: "claims of 512, 64 queues",
        queues: 64,
        batch: 512,
        bytes: SMALL,
        share: 1,
        pinned: false,
    },
    Case {
        name: "claims of 512, 1,000 B",
        queues: 1,
        batch: 512,
        bytes: 1_000,
        share: 2,
        pinned: false,
    },
];

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for case in CASES {
        for _ in 0..bench.runs {
            one::<Ours>(bench, case).await?;
            one::<Plain>(bench, case).await?;
            one::<Floor>(bench, case).await?;
        }
    }
    Ok(())
}

async fn one<C: Contender>(bench: &mut Bench, case: Case) -> Result<()> {
    bench.say(format!("{SCENARIO}: {}: {}", case.name, C::NAME));
    let place = bench.lab.place().await?;
    let contender = C::install(&place, case.queues).await?;
    let each = (bench.jobs / case.share / case.queues as u64).max(1);
    let jobs = each * case.queues as u64;
    // A reader that began before the first job and does not end: nothing can be vacuumed away.
    let pin = if case.pinned { Some(place.pin().await?) } else { None };
    fill(&contender, case.queues, each, case.bytes).await?;
    C::settle(&place).await?;
    let backlog = Backlog { jobs, queues: case.queues, batch: case.batch };
    let (cost, calls) = drained(&bench.lab, &place, &contender, backlog).await?;
    drop(pin);
    bench.take(Sample::new(SCENARIO, case.name, C::NAME, cost).with_calls(Call::Claim, &calls));
    bench.lab.clear(place).await
}
