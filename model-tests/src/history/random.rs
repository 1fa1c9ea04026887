//! Histories by chance. They shrink: to fewer operations, fewer jobs, the first of everything.

use std::collections::BTreeSet;

use awa_core::{Ring, Slot, Span};
use proptest::prelude::*;

use super::op::{Batch, How, LaneName, Op, Scope, Which, Whose};

/// How a storage's clock goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It stands still but for [`Op::Advance`]: instants meet exactly.
    Stands,
    /// It also goes by itself, by seconds at most in a whole history: no two instants that matter lie
    /// closer than tens of seconds to one another.
    Goes,
}

impl Clock {
    /// Spans for floors, delays and deadlines beside steps of 100 s.
    fn spans(self) -> [u64; 3] {
        match self {
            Self::Stands => [0, 100, 200],
            Self::Goes => [0, 50, 150],
        }
    }
}

fn lane() -> impl Strategy<Value = LaneName> {
    // Mostly one lane, so that jobs meet.
    let named = |queue, priority, shard| LaneName { queue, priority, shard };
    prop_oneof![
        12 => Just(named('a', 2, 0)),
        2 => Just(named('a', 1, 0)),
        2 => Just(named('b', 2, 0)),
        1 => Just(named('b', 2, 1)),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    let tagged = prop::bool::weighted(0.2);
    (1..6u8, lane(), prop::sample::select(vec!['k', 'l']), 1..4i16, tagged).prop_map(
        |(count, lane, kind, attempts, tagged)| Batch { count, lane, kind, attempts, tagged },
    )
}

fn span(clock: Clock) -> impl Strategy<Value = u64> {
    prop::sample::select(clock.spans().to_vec())
}

fn ring() -> impl Strategy<Value = Ring> {
    prop_oneof![4 => Just(Ring::Queue), 2 => Just(Ring::Claim), 1 => Just(Ring::Lease)]
}

fn whose() -> impl Strategy<Value = Whose> {
    prop_oneof![
        4 => Just(Whose::All),
        4 => (0..8u16).prop_map(Whose::Any),
        1 => (0..40u16).prop_map(Whose::Old),
    ]
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        2 => (0..20u16).prop_map(|n| Scope::One(Which::Any(n))),
        1 => prop::sample::select(vec!['k', 'l']).prop_map(Scope::Kind),
        1 => prop::sample::select(vec!['a', 'b']).prop_map(Scope::Queue),
    ]
}

fn several() -> impl Strategy<Value = Scope> {
    prop_oneof![
        prop::sample::select(vec!['k', 'l']).prop_map(Scope::Kind),
        prop::sample::select(vec!['a', 'b']).prop_map(Scope::Queue),
    ]
}

fn prune(clock: Clock) -> impl Strategy<Value = Op> {
    let slot = prop::option::weighted(0.2, (0..4).prop_map(Slot));
    (ring(), slot, prop::option::weighted(0.8, span(clock)))
        .prop_map(|(ring, slot, keep_s)| Op::Prune { ring, slot, keep_s })
}

fn producing() -> impl Strategy<Value = Op> {
    let producer = 1..3u8;
    prop_oneof![
        3 => (producer.clone(), prop::bool::weighted(0.3))
            .prop_map(|(producer, repeatable_read)| Op::Begin { producer, repeatable_read }),
        4 => (producer.clone(), batch()).prop_map(|(producer, batch)| Op::Produce(producer, batch)),
        6 => producer.clone().prop_map(Op::Commit),
        2 => producer.prop_map(Op::Abort),
    ]
}

fn work(clock: Clock) -> impl Strategy<Value = Op> {
    let for_s = prop::option::weighted(0.3, prop::sample::select(vec![clock.spans()[1]]));
    let how = prop_oneof![
        3 => Just(How::Complete),
        3 => Just(How::Fail),
        2 => span(clock).prop_map(How::Postpone),
        2 => Just(How::HandBack),
    ];
    prop_oneof![
        4 => (lane(), 1..9u16, for_s)
            .prop_map(|(lane, limit, for_s)| Op::Claim { lane, limit, for_s }),
        4 => (whose(), how).prop_map(|(whose, how)| Op::Finish(whose, how)),
    ]
}

fn operating() -> impl Strategy<Value = Op> {
    let which = prop_oneof![2 => 0..6u16, 1 => 0..40u16].prop_map(Which::Any);
    prop_oneof![
        3 => which.clone().prop_map(Op::Cancel),
        2 => which.prop_map(Op::Delete),
        3 => scope().prop_map(Op::Retry),
        1 => several().prop_map(Op::Discard),
    ]
}

fn keeping(clock: Clock) -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => ring().prop_map(Op::Rotate),
        6 => prune(clock),
        2 => Just(Op::Rollup),
        1 => Just(Op::Rebuild),
        1 => Just(Op::Distrust),
        1 => Just(Op::Rescue),
        2 => (1..9u16).prop_map(Op::Promote),
    ]
}

/// What runs as machines in the worker's session, and so may crash between its acts.
fn by_machine(clock: Clock) -> impl Strategy<Value = Op> {
    let scheduled = (batch(), span(clock)).prop_map(|(batch, s)| Op::Schedule(batch, s));
    prop_oneof![
        4 => batch().prop_map(Op::Enqueue),
        1 => batch().prop_map(Op::Copy),
        1 => scheduled,
        10 => work(clock),
        4 => operating(),
        11 => keeping(clock),
    ]
}

fn op(clock: Clock) -> impl Strategy<Value = Op> {
    prop_oneof![
        28 => by_machine(clock),
        3 => producing(),
        2 => Just(Op::Advance(Span::from_secs(100))),
        1 => Just(Op::Restart),
        3 => (0..12u32, by_machine(clock)).prop_map(|(acts, op)| Op::Crash(acts, Box::new(op))),
    ]
}

const LANES: [(char, i16, i16); 4] = [('a', 2, 0), ('a', 1, 0), ('b', 2, 0), ('b', 2, 1)];

fn ends() -> impl Strategy<Value = How> {
    prop_oneof![2 => Just(How::Fail), 1 => Just(How::Complete)]
}

/// Jobs on their way into history.
fn lives() -> impl Strategy<Value = Vec<Op>> {
    (batch(), 4..20u16, ends(), prop::option::of(ring())).prop_map(
        |(batch, limit, how, rotates)| {
            let claim = Op::Claim { lane: batch.lane, limit, for_s: None };
            let mut ops = vec![Op::Enqueue(batch), claim, Op::Finish(Whose::All, how)];
            ops.extend(rotates.map(Op::Rotate));
            ops
        },
    )
}

/// Everything that waits in a lane comes to an end.
fn drains() -> impl Strategy<Value = Vec<Op>> {
    ends().prop_map(|how| {
        let named = LANES.map(|(queue, priority, shard)| LaneName { queue, priority, shard });
        let claims = named.map(|lane| Op::Claim { lane, limit: 50, for_s: None });
        [claims.to_vec(), vec![Op::Finish(Whose::All, how)]].concat()
    })
}

/// Attempts that are followed by others.
fn tries_again(clock: Clock) -> impl Strategy<Value = Vec<Op>> {
    let later = Op::Advance(Span::from_secs(100));
    let again = move |lane| vec![later.clone(), later.clone(), Op::Promote(20), claim_of(lane)];
    let [_, soon, _] = clock.spans();
    prop_oneof![
        (batch(), span(clock)).prop_map({
            let again = again.clone();
            move |(batch, s)| {
                let first = vec![Op::Enqueue(batch), claim_of(batch.lane)];
                [first, vec![Op::Finish(Whose::All, How::Postpone(s))], again(batch.lane)].concat()
            }
        }),
        batch().prop_map(move |batch| {
            let claim = Op::Claim { lane: batch.lane, limit: 20, for_s: Some(soon) };
            let late = Op::Advance(Span::from_secs(200));
            [vec![Op::Enqueue(batch), claim, late, Op::Rescue], again(batch.lane)].concat()
        }),
        (several(), lane()).prop_map(|(scope, lane)| vec![Op::Retry(scope), claim_of(lane)]),
    ]
}

const fn claim_of(lane: LaneName) -> Op {
    Op::Claim { lane, limit: 20, for_s: None }
}

/// A slot is emptied, if what is in it lets it.
fn turns(clock: Clock) -> impl Strategy<Value = Vec<Op>> {
    (ring(), prop::option::weighted(0.8, span(clock)), any::<bool>()).prop_map(
        |(ring, keep_s, folds)| {
            let mut ops = vec![Op::Rotate(ring)];
            if folds {
                ops.push(Op::Rollup);
            }
            ops.push(Op::Prune { ring, slot: None, keep_s });
            ops
        },
    )
}

/// A producer that has something to say.
fn produces() -> impl Strategy<Value = Vec<Op>> {
    (1..3u8, any::<bool>(), batch()).prop_map(|(producer, repeatable_read, batch)| {
        vec![Op::Begin { producer, repeatable_read }, Op::Produce(producer, batch)]
    })
}

/// A producer whose segment was emptied behind its back: its rows come to lie in a pruned slot.
fn comes_late() -> impl Strategy<Value = Vec<Op>> {
    (drains(), batch(), any::<bool>()).prop_map(|(mut ops, batch, claims)| {
        ops.extend([
            Op::Begin { producer: 1, repeatable_read: true },
            Op::Rotate(Ring::Queue),
            Op::Prune { ring: Ring::Queue, slot: None, keep_s: Some(0) },
            Op::Produce(1, batch),
            Op::Commit(1),
        ]);
        ops.extend(claims.then(|| claim_of(batch.lane)));
        ops
    })
}

fn ops(clock: Clock) -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![
        12 => op(clock).prop_map(|op| vec![op]),
        3 => lives(),
        3 => turns(clock),
        2 => drains(),
        2 => tries_again(clock),
        1 => produces(),
        1 => comes_late(),
    ]
}

/// Whether the operation rolls up, or would if it didn't crash.
fn rolls_up(op: &Op) -> bool {
    match op {
        Op::Crash(_, op) => rolls_up(op),
        op => matches!(op, Op::Rollup),
    }
}

fn rescues(op: &Op) -> bool {
    match op {
        Op::Crash(_, op) => rescues(op),
        op => matches!(op, Op::Rescue),
    }
}

/// Takes out what a clock that goes by itself decides: whether a producer has been open for a second
/// when a rollup looks, and whether a rescued attempt's backoff of seconds is over.
fn independent_of_seconds(ops: Vec<Op>) -> Vec<Op> {
    let mut open = BTreeSet::new();
    let mut kept = Vec::new();
    for op in ops {
        if let Op::Begin { producer, .. } = op {
            open.insert(producer);
        }
        if let Op::Commit(producer) | Op::Abort(producer) = op {
            open.remove(&producer);
        }
        if rolls_up(&op) && !open.is_empty() {
            continue;
        }
        let rescued = rescues(&op);
        kept.push(op);
        if rescued {
            kept.push(Op::Advance(Span::from_secs(100)));
        }
    }
    kept
}

/// Histories of so many pieces, of an operation or a few each.
pub fn history(
    clock: Clock,
    pieces: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Vec<Op>> {
    let ops = prop::collection::vec(ops(clock), pieces);
    ops.prop_map(move |pieces| match clock {
        Clock::Stands => pieces.concat(),
        Clock::Goes => independent_of_seconds(pieces.concat()),
    })
}

/// A history as the lines of a scenario.
#[must_use]
pub fn as_text(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("{op}\n")).collect()
}
