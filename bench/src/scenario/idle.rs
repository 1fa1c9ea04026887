//! What a worker costs that has nothing to do, with maintenance, while failures are held.
//!
//! Of two workers, one idles for longer; the difference is what is reported, so that it holds neither what
//! starting costs nor what stopping does.

use std::time::Duration;

use anyhow::Result;
use awa::{Ring, Worker};

use crate::contender::{Contender, Ours, queue_name};
use crate::lab::Place;
use crate::meter::Cost;
use crate::report::{Sample, short};
use crate::scenario::history::{Ending, forget_claims, rotate};
use crate::scenario::{Bench, SMALL, fill, measured};

pub(crate) const SCENARIO: &str = "idle";
pub(crate) const NOTE: &str = "units are seconds; nothing is called. Of two workers one idles for longer: the difference is shown, \
     and what is next to nothing may come out below it. What idles is Awa's own worker and housekeeping: no baseline has them.";
/// Failures held. The ring has turned on once since they failed.
const HELD: [u64; 2] = [1, 100_000];
const SHORT: Duration = Duration::from_secs(10);
/// What is reported is so long.
const SPAN: Duration = Duration::from_secs(30);
const CONCURRENCY: u32 = 64;

pub(crate) async fn run(bench: &mut Bench) -> Result<()> {
    for held in HELD {
        for _ in 0..bench.runs_of_long_cases() {
            one(bench, held).await?;
        }
    }
    Ok(())
}

async fn one(bench: &mut Bench, held: u64) -> Result<()> {
    let failures = if held == 1 { "failure" } else { "failures" };
    let case = format!("{} {failures} held, each second", short(held as f64));
    bench.say(format!("{SCENARIO}: {case}"));
    let place = bench.lab.place().await?;
    let ours = Ours::install(&place, 1).await?;
    fill(&ours, 1, held, SMALL).await?;
    Ending::of(&ours, 1).await?.end(0, held, held).await?;
    let client = ours.client().await?;
    rotate(&client, Ring::Queue).await?;
    forget_claims(&client).await?;
    drop(client);
    // Autovacuum has come to see what was filled, and would be seen here.
    autovacuum(&place, "off").await?;
    let seconds = SPAN.as_secs();
    let less = measured(&bench.lab, &place, seconds, || idle(&ours, SHORT)).await?;
    let more = measured(&bench.lab, &place, seconds, || idle(&ours, SHORT + SPAN)).await?;
    autovacuum(&place, "on").await?;
    bench.take(Sample::new(SCENARIO, case, Ours::NAME, difference(&more, &less)));
    bench.lab.clear(place).await
}

async fn idle(ours: &Ours, span: Duration) -> Result<()> {
    let worker = Worker::new(ours.client().await?).queue(&queue_name(0), CONCURRENCY)?;
    let worker = worker.fallback(|_| async { Ok(()) }).start().await?;
    if let Some(maintenance) = worker.maintenance() {
        let rings = Ring::ALL.len();
        maintenance.watch().wait_for(|s| s.leading && s.rings.len() == rings).await?;
    }
    // The measurement itself: this is how long nothing happens.
    tokio::time::sleep(span).await;
    worker.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Lets autovacuum look at this server's databases or not, once those of its processes that work have ended.
async fn autovacuum(place: &Place, switch: &str) -> Result<()> {
    place.sql.batch_execute(&format!("alter system set autovacuum = {switch}")).await?;
    place.sql.batch_execute("select pg_reload_conf()").await?;
    let working = "select count(*) from pg_stat_activity where backend_type = 'autovacuum worker'";
    while switch == "off" && place.sql.query_one(working, &[]).await?.get::<_, i64>(0) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn difference(more: &Cost, less: &Cost) -> Cost {
    let mut dead = more.dead.clone();
    for (relation, rows) in &less.dead {
        *dead.entry(relation.clone()).or_default() -= rows;
    }
    dead.retain(|_, rows| *rows > 0);
    Cost {
        jobs: more.jobs,
        seconds: more.seconds - less.seconds,
        server_cpu_us: more.server_cpu_us - less.server_cpu_us,
        client_cpu_us: more.client_cpu_us - less.client_cpu_us,
        wal_bytes: more.wal_bytes - less.wal_bytes,
        wal_records: more.wal_records - less.wal_records,
        page_image_bytes: more.page_image_bytes - less.page_image_bytes,
        transactions: more.transactions - less.transactions,
        dead,
    }
}
