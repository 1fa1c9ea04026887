//! Ways in: one job a transaction, batches, COPY; one producer and eight; small args and large.

use anyhow::Result;

use crate::calls::Call;
use crate::contender::{Clocked, Contender, Floor, Ours, Plain, Producer, args};
use crate::report::Sample;
use crate::scenario::{Bench, SMALL, measured};

pub(crate) const SCENARIO: &str = "enqueue";
pub(crate) const NOTE: &str = "a call is one transaction of a producer. Producers of one process share Awa's client; those of the baselines have \
    a connection each in any case.";

#[derive(Clone, Copy)]
struct Case {
    producers: usize,
    /// Whether they share what a process would share.
    one_process: bool,
    /// Jobs a transaction.
    batch: usize,
    by_copy: bool,
    bytes: usize,
    /// The share of the bench's jobs that this case enqueues: one in so many.
    share: u64,
}

const CASES: [Case; 11] = [
    Case { producers: 1, one_process: false, batch: 1, by_copy: false, bytes: SMALL, share: 20 },
    Case { producers: 8, one_process: false, batch: 1, by_copy: false, bytes: SMALL, share: 10 },
    Case { producers: 8, one_process: true, batch: 1, by_copy: false, bytes: SMALL, share: 10 },
    Case { producers: 1, one_process: false, batch: 500, by_copy: false, bytes: SMALL, share: 1 },
    Case { producers: 1, one_process: false, batch: 500, by_copy: false, bytes: 100, share: 1 },
    Case { producers: 1, one_process: false, batch: 500, by_copy: false, bytes: 1_000, share: 2 },
    Case {
        producers: 1,
        one_process: false,
        batch: 20,
        by_copy: false,
        bytes: 100_000,
        share: 100,
    },
    Case { producers: 8, one_process: false, batch: 500, by_copy: false, bytes: SMALL, share: 1 },
    Case { producers: 1, one_process: false, batch: 10_000, by_copy: true, bytes: SMALL, share: 1 },
    Case { producers: 1, one_process: false, batch: 10_000, by_copy: true, bytes: 1_000, share: 2 },
    Case { producers: 8, one_process: false, batch: 5_000, by_copy: true, bytes: SMALL, share: 1 },
];

impl Case {
    fn name(&self) -> String {
        let how = match (self.by_copy, self.batch) {
            (true, rows) => format!("COPY of {rows}"),
            (false, 1) => "one a transaction".to_owned(),
            (false, rows) => format!("batches of {rows}"),
        };
        let producers = match (self.producers, self.one_process) {
            (1, _) => "1 producer".to_owned(),
            (many, false) => format!("{many} producers"),
            (many, true) => format!("{many} producers of one process"),
        };
        format!("{how}, {producers}, {} B", self.bytes)
    }

    /// What each producer sends, transaction by transaction.
    fn loads(&self, jobs: u64) -> Vec<Vec<Vec<String>>> {
        let each = (jobs / self.share / self.producers as u64).max(1);
        let load = |producer: u64| {
            let all: Vec<_> = (0..each).map(|n| args(self.bytes, producer * each + n)).collect();
            all.chunks(self.batch).map(<[String]>::to_vec).collect()
        };
        (0..self.producers as u64).map(load).collect()
    }
}

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
    bench.say(format!("{SCENARIO}: {}: {}", case.name(), C::NAME));
    let place = bench.lab.place().await?;
    let contender = C::install(&place, 1).await?;
    let loads = case.loads(bench.jobs);
    let jobs = loads.iter().flatten().map(|batch| batch.len() as u64).sum();
    let (contender, calls) = Clocked::new(&contender);
    let cost = measured(&bench.lab, &place, jobs, || async {
        let mut tasks = Vec::new();
        let producers = contender.producers(case.producers, case.one_process).await?;
        for (load, mut producer) in loads.into_iter().zip(producers) {
            tasks.push(tokio::spawn(async move {
                for batch in load {
                    if case.by_copy {
                        producer.copy(0, batch).await?;
                    } else {
                        producer.enqueue(0, batch).await?;
                    }
                }
                anyhow::Ok(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
    .await?;
    let sample = Sample::new(SCENARIO, case.name(), C::NAME, cost);
    bench.take(sample.with_calls(Call::Enqueue, &calls));
    bench.lab.clear(place).await
}
