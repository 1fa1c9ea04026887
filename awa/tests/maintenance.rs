//! The maintenance service: one process leads and another takes over; what is due is promoted; rings
//! turn and are pruned by policy, with the service's own floor, past slots that can't be; counters are
//! rolled up.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use awa::core::Fault;
use awa::core::runtime::policy::HeldReason;
use awa::{Maintenance, MaintenanceService, Ring, Slot, TerminalFilter};
use common::{Bench, job};

const HOUR: Duration = Duration::from_secs(3600);
/// Twice what the slowest thing that is waited for takes by its own timing, and more.
const SOON: Duration = Duration::from_secs(90);

/// A service with its own connections, whose completed history may go at once.
async fn service(bench: &Bench, failed_retention: Duration) -> MaintenanceService {
    let maintenance = Maintenance { failed_retention, completed_retention: Duration::ZERO };
    MaintenanceService::start(bench.another_client().await, maintenance)
}

/// Waits until what the service says of itself is so.
async fn until(
    service: &MaintenanceService,
    is_so: impl FnMut(&awa::MaintenanceStats) -> bool,
) -> awa::MaintenanceStats {
    let mut watch = service.watch();
    let waited = tokio::time::timeout(SOON, watch.wait_for(is_so)).await;
    waited.unwrap_or_else(|_| panic!("waited in vain: {:?}", service.stats())).unwrap().clone()
}

/// Makes what the policy goes by look as if all of it had happened a day earlier.
async fn a_day_later(bench: &Bench) {
    bench
        .execute(
            "update S.queue_ring_slots set opened_at = opened_at - interval '1 day',
                                           sealed_at = sealed_at - interval '1 day'",
        )
        .await;
}

/// What the installation's leadership looks like among the server's locks.
const LEADERSHIP: &str = "pg_locks where locktype = 'advisory' and granted and objsubid = 2
         and objid = 0 and database = (select oid from pg_database where datname = current_database())";

/// The session that holds it.
async fn leader(bench: &Bench) -> i32 {
    bench.number(&format!("select pid from {LEADERSHIP}")).await as i32
}

/// Of several services one leads. One that has lost its lock to another session steps down; when that
/// session ends, one of them takes over within its next try, and works; when the leader leaves, the next
/// takes over.
#[tokio::test]
async fn one_leads_and_another_takes_over() {
    let bench = Bench::alone().await;
    let first = service(&bench, HOUR).await;
    until(&first, |s| s.leading).await;
    let lost = leader(&bench).await;
    let (second, third) = (service(&bench, HOUR).await, service(&bench, HOUR).await);

    // A session that waits for the lock has it as soon as the leader's ends: nobody's try comes first.
    let class = bench.number(&format!("select classid::int from {LEADERSHIP}")).await;
    let other = common::connect_to(&bench).await;
    let taking = format!("select pg_advisory_lock({class}, 0)");
    let taken = tokio::join!(other.batch_execute(&taking), async {
        bench.blocked_by(lost).await;
        bench.kill(lost).await;
    });
    taken.0.unwrap();
    until(&first, |s| !s.leading).await;
    let mut services = vec![first, second, third];
    assert!(services.iter().all(|s| !s.stats().leading));

    drop(other);
    let next = services.remove(who_leads(&services).await);
    bench.client.enqueue(job(1).run_in(Duration::from_millis(1))).await.unwrap();
    until(&next, |s| s.promoted == 1).await;
    assert!(services.iter().all(|s| !s.stats().leading));

    next.shutdown().await;
    let last = services.remove(who_leads(&services).await);
    for service in services {
        assert!(!service.stats().leading);
        service.shutdown().await;
    }
    last.shutdown().await;
    bench.until(&format!("select count(*) from {LEADERSHIP}"), |n| n == 0).await;
}

/// Waits until one of them leads.
async fn who_leads(services: &[MaintenanceService]) -> usize {
    let mut waiting = tokio::task::JoinSet::new();
    for (which, service) in services.iter().enumerate() {
        let mut watch = service.watch();
        waiting.spawn(async move { watch.wait_for(|s| s.leading).await.map(|_| which) });
    }
    let waited = tokio::time::timeout(SOON, waiting.join_next()).await;
    waited.expect("one of them leads").unwrap().unwrap().unwrap()
}

/// A leader whose session ends knows it at once, long before it would make sure of its lock (30 s): it steps
/// down and stands again.
#[tokio::test]
async fn a_leader_knows_at_once_that_its_session_ended() {
    let bench = Bench::alone().await;
    let service = service(&bench, HOUR).await;
    until(&service, |s| s.leading).await;
    for _ in 0..2 {
        let lost = leader(&bench).await;
        bench.kill(lost).await;
        let again = format!("select count(*) from {LEADERSHIP} and pid <> {lost}");
        let replaced = bench.until(&again, |n| n == 1);
        tokio::time::timeout(Duration::from_secs(15), replaced).await.unwrap();
        until(&service, |s| s.leading).await;
    }
    service.shutdown().await;
}

/// Scheduled jobs and retries are promoted when they are due, and not before.
#[tokio::test]
async fn what_is_due_is_promoted() {
    let bench = Bench::alone().await;
    let now = bench.client.enqueue(job(1).run_in(Duration::from_millis(300))).await.unwrap();
    let later = bench.client.enqueue(job(2).run_in(HOUR)).await.unwrap();
    let service = service(&bench, HOUR).await;
    let stats = until(&service, |s| s.promoted > 0).await;
    assert_eq!((stats.promoted, stats.leading), (1, true));
    let claimed = bench.claim(10).await;
    assert_eq!(claimed.iter().map(|j| j.receipt.job).collect::<Vec<_>>(), [now]);
    assert!(claimed[0].run_at <= bench.now().await);
    bench
        .execute(&format!("update S.deferred_jobs set run_at = now() where job_id = {}", later.0))
        .await;
    assert_eq!(until(&service, |s| s.promoted > 1).await.promoted, 2);
    assert_eq!(bench.claim(10).await[0].receipt.job, later);
    service.shutdown().await;
}

/// R032-11, R032-15: the service rotates what is old and prunes what is past its window, and passes its own
/// `failed_retention` to prune: failures inside it are carried and said to be, those past it folded.
#[tokio::test]
async fn rings_turn_by_policy_with_the_services_own_floor() {
    for (failed_retention, carried) in [(HOUR, 3), (Duration::ZERO, 0)] {
        let bench = Bench::alone().await;
        bench.fail(3).await;
        bench.enqueue(2).await;
        bench.complete(2).await;
        let service = service(&bench, failed_retention).await;
        let observed = until(&service, |s| s.rings.len() == 3).await;
        assert_eq!((observed.rotated, observed.pruned), (0, 0), "nothing is old yet");

        a_day_later(&bench).await;
        until(&service, |s| s.rotated > 0).await;
        a_day_later(&bench).await;
        let stats = until(&service, |s| s.pruned > 0).await;
        assert_eq!((stats.carried_failed_rows, stats.pruned), (carried, 1));
        let counts = bench.client.counts("q").await.unwrap();
        let expected = (carried as i64, 3 - carried as i64, 2, 5);
        assert_eq!(
            (counts.failed, counts.pruned_failed, counts.pruned_other, counts.total()),
            expected
        );
        // What it left is a slot of failures inside the floor alone, or an empty one: nothing to turn for.
        a_day_later(&bench).await;
        service.shutdown().await;
        let service = self::service(&bench, failed_retention).await;
        let stats = until(&service, |s| s.rings.len() == 3).await;
        assert_eq!((stats.rotated, stats.pruned, stats.carried_failed_rows), (0, 0, 0));
        service.shutdown().await;
    }
}

/// Two sealed slots with two failures each, a day old, and an open third one.
async fn two_sealed_slots(bench: &Bench) -> Vec<awa::JobId> {
    let first = bench.fail(2).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    bench.fail(2).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    a_day_later(bench).await;
    first
}

/// H31: a slot whose carry collides does not stop the others: it is reported as faulty and stepped over;
/// the next one is pruned. Once an operator has made room, it is pruned too.
#[tokio::test]
async fn a_collision_stops_one_slot_and_not_the_ring() {
    let bench = Bench::alone().await;
    let failed = two_sealed_slots(&bench).await;
    let collide = format!(
        "insert into S.done_entries (ready_slot, ready_generation, attempt, max_attempts, lane_id, lane_seq,
                job_id, run_lease, finalized_at, run_at, created_at, state, kind, args)
         select 2, 3, 1, 1, lane_id, lane_seq, 4711, 1, now(), now(), now(), 'failed', 'other', '{{}}'
           from S.done_entries where job_id = {}",
        failed[0].0
    );
    bench.execute(&collide).await;
    let service = service(&bench, HOUR).await;
    until(&service, |s| s.carried_failed_rows == 2).await;
    let stats = until(&service, |s| !held(s).is_empty()).await;
    assert_eq!(held(&stats), [(Slot(0), HeldReason::Faulty)]);
    assert_eq!(bench.number("select count(*) from S.done_entries where ready_slot = 0").await, 2);

    let which = TerminalFilter::Job(awa::JobId(4711));
    bench.client.discard_failed(which).await.unwrap();
    until(&service, |s| s.carried_failed_rows == 4).await;
    assert_eq!(bench.rows("done_entries").await, 4);
    service.shutdown().await;
}

/// H30: nor does a slot with a failure whose body is lost.
#[tokio::test]
async fn a_lost_body_stops_one_slot_and_not_the_ring() {
    let bench = Bench::alone().await;
    let failed = two_sealed_slots(&bench).await;
    bench.execute(&format!("delete from S.ready_entries where job_id = {}", failed[0].0)).await;
    let service = service(&bench, HOUR).await;
    until(&service, |s| s.carried_failed_rows == 2).await;
    let stats = until(&service, |s| !held(s).is_empty()).await;
    assert_eq!(held(&stats), [(Slot(0), HeldReason::Faulty)]);
    let told = bench.client.prune_oldest(HOUR).await.unwrap().to_string();
    assert!(told.contains(&Fault::BodyMissing { rows: 1 }.to_string()), "{told}");

    bench.client.discard_failed(TerminalFilter::Job(failed[0])).await.unwrap();
    until(&service, |s| s.carried_failed_rows == 3).await;
    service.shutdown().await;
}

/// The slots of the queue ring that were found held when last tried.
fn held(stats: &awa::MaintenanceStats) -> Vec<(Slot, HeldReason)> {
    let queue = stats.rings.get(&Ring::Queue);
    queue.into_iter().flat_map(|ring| &ring.held).map(|h| (h.segment.slot, h.reason)).collect()
}

/// R026-24, R026-31: pending deltas of sealed slots are rolled up once the interval of 30 s has passed.
#[tokio::test]
async fn deltas_are_rolled_up_on_their_interval() {
    let bench = Bench::alone().await;
    bench.fail(3).await;
    bench.client.rotate(Ring::Queue).await.unwrap();
    // It can't have led before it was there.
    let before = std::time::Instant::now();
    let service = service(&bench, HOUR).await;
    assert_eq!(until(&service, |s| s.rolled_up > 0).await.rolled_up, 1);
    assert!(before.elapsed() >= Duration::from_secs(30), "{:?}", before.elapsed());
    assert_eq!(bench.rows("queue_terminal_count_deltas").await, 0);
    assert_eq!(bench.number("select sum(count) from S.queue_terminal_live_counts").await, 3);
    assert_eq!(bench.client.counts("q").await.unwrap().failed, 3);
    service.shutdown().await;
}
