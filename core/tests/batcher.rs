//! The completion batcher: by size or age, one flush a shard, nothing lost, nothing twice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::num::{NonZeroU16, NonZeroUsize};

use awa_core::runtime::Tick;
use awa_core::runtime::batcher::{
    Batcher, BatcherAction, BatcherConfig, Flush, FlushFailure, Full, Sharded, completion_shards,
};
use awa_core::time::Span;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Item {
    key: u64,
    number: u64,
}

impl Sharded for Item {
    fn shard_key(&self) -> u64 {
        self.key
    }
}

fn item(number: u64) -> Item {
    Item { key: 0, number }
}

fn config(shards: u16, flush_rows: usize, held_max: usize) -> BatcherConfig {
    BatcherConfig {
        shards: NonZeroU16::new(shards).unwrap(),
        flush_rows: NonZeroUsize::new(flush_rows).unwrap(),
        held_max: NonZeroUsize::new(held_max).unwrap(),
        ..BatcherConfig::for_workers(1, 9)
    }
}

fn ms(n: u64) -> Tick {
    Tick(n * 1_000)
}

fn flush(batcher: &mut Batcher<Item>, now: Tick) -> Flush<Item> {
    match batcher.poll(now) {
        Some(BatcherAction::Flush(flush)) => flush,
        other => panic!("{other:?}"),
    }
}

fn numbers(flush: &Flush<Item>) -> Vec<u64> {
    flush.items().iter().map(|item| item.number).collect()
}

#[test]
fn defaults_are_the_recorded_ones() {
    assert_eq!([1, 511, 512, 1024].map(|workers| completion_shards(workers).get()), [1, 1, 4, 4]);
    let small = BatcherConfig::for_workers(0, 0);
    assert_eq!((small.flush_rows.get(), small.flush_age), (512, Span::from_ms(1)));
    assert_eq!((small.shards.get(), small.held_max.get()), (1, 1024));
    assert_eq!(BatcherConfig::for_workers(1024, 0).held_max.get(), 4096);
    assert_eq!(BatcherConfig::for_workers(10_000, 0).held_max.get(), 20_000);
}

#[test]
fn flushes_at_size_or_age_whichever_comes_first() {
    let mut batcher = Batcher::new(config(1, 3, 100));
    assert_eq!((batcher.poll(ms(0)), batcher.next_wake()), (None, None));
    batcher.handle_item(item(1), ms(10)).unwrap();
    batcher.handle_item(item(2), Tick(10_500)).unwrap();
    assert_eq!((batcher.poll(ms(10)), batcher.next_wake()), (None, Some(ms(11))));
    let by_age = flush(&mut batcher, ms(11));
    assert_eq!(numbers(&by_age), [1, 2]);
    // One flush in flight: the next items gather, however many and old.
    for number in 3..=9 {
        batcher.handle_item(item(number), ms(11)).unwrap();
    }
    assert_eq!((batcher.poll(ms(99)), batcher.next_wake()), (None, None));
    assert_eq!(batcher.handle_flushed(by_age), [item(1), item(2)]);
    let by_size = flush(&mut batcher, ms(11));
    assert_eq!(numbers(&by_size), [3, 4, 5]);
    assert_eq!(batcher.held(), 7);
}

#[test]
fn refuses_above_its_bound_and_hands_the_item_back() {
    let mut batcher = Batcher::new(config(1, 2, 3));
    for number in 1..=3 {
        batcher.handle_item(item(number), ms(0)).unwrap();
    }
    assert_eq!(batcher.handle_item(item(4), ms(0)), Err(Full(item(4))));
    let first = flush(&mut batcher, ms(0));
    // What is in flight still counts: it may come back.
    assert_eq!(batcher.handle_item(item(4), ms(0)), Err(Full(item(4))));
    batcher.handle_flushed(first);
    batcher.handle_item(item(4), ms(0)).unwrap();
    assert_eq!(numbers(&flush(&mut batcher, ms(0))), [3, 4]);
}

#[test]
fn a_failed_flush_comes_back_first_after_a_back_off() {
    let mut batcher = Batcher::new(config(1, 2, 100));
    for number in 1..=4 {
        batcher.handle_item(item(number), ms(0)).unwrap();
    }
    let (mut now, mut bound_us) = (ms(0), 50_000);
    for _ in 0..12 {
        let failing = flush(&mut batcher, now);
        assert_eq!(numbers(&failing), [1, 2]);
        batcher.handle_flush_failed(failing, FlushFailure::Transient, now);
        assert_eq!(batcher.poll(now), None);
        let wake = batcher.next_wake().unwrap();
        let wait_us = wake.since(now).us();
        assert!(wait_us * 2 >= bound_us && wait_us <= bound_us, "{wait_us} of {bound_us}");
        (now, bound_us) = (wake, (bound_us * 2).min(5_000_000));
    }
    let first = flush(&mut batcher, now);
    batcher.handle_flushed(first);
    assert_eq!(numbers(&flush(&mut batcher, now)), [3, 4]);
}

#[test]
fn one_item_at_fault_is_found_and_the_rest_goes_on() {
    let mut batcher = Batcher::new(config(1, 512, 1024));
    for number in 0..512 {
        batcher.handle_item(item(number), ms(0)).unwrap();
    }
    let (mut stored, mut rejected, mut flushes) = (Vec::new(), Vec::new(), 0);
    while let Some(action) = batcher.poll(ms(1)) {
        match action {
            BatcherAction::Flush(flush) if numbers(&flush).contains(&300) => {
                flushes += 1;
                batcher.handle_flush_failed(flush, FlushFailure::Content, ms(1));
            }
            BatcherAction::Flush(flush) => {
                flushes += 1;
                stored.extend(batcher.handle_flushed(flush).iter().map(|item| item.number));
            }
            BatcherAction::Rejected(item) => rejected.push(item.number),
            BatcherAction::Drained => panic!("not draining"),
        }
    }
    assert_eq!(rejected, [300]);
    assert_eq!(stored, (0..512).filter(|&n| n != 300).collect::<Vec<_>>());
    assert!(flushes <= 40, "{flushes}");
    assert_eq!((batcher.held(), batcher.next_wake()), (0, None));
}

#[test]
fn a_drain_waits_for_no_company_and_says_when_it_is_empty() {
    let mut batcher = Batcher::new(config(2, 100, 100));
    batcher.handle_item(Item { key: 0, number: 1 }, ms(0)).unwrap();
    batcher.handle_item(Item { key: 3, number: 2 }, ms(0)).unwrap();
    assert_eq!(batcher.poll(ms(0)), None);
    batcher.drain();
    assert_eq!(batcher.next_wake(), Some(Tick(0)));
    let (one, other) = (flush(&mut batcher, ms(0)), flush(&mut batcher, ms(0)));
    assert_eq!((one.shard(), other.shard()), (0, 1));
    assert_eq!(batcher.poll(ms(0)), None);
    batcher.handle_flushed(one);
    assert_eq!(batcher.poll(ms(0)), None);
    batcher.handle_flushed(other);
    assert_eq!(batcher.next_wake(), Some(Tick(0)));
    assert_eq!(batcher.poll(ms(0)), Some(BatcherAction::Drained));
    assert_eq!((batcher.poll(ms(0)), batcher.next_wake()), (None, None));
    // A handler that finishes late is still taken in.
    batcher.handle_item(item(3), ms(5)).unwrap();
    let late = flush(&mut batcher, ms(5));
    batcher.handle_flushed(late);
    assert_eq!(batcher.poll(ms(5)), Some(BatcherAction::Drained));
}

/// A fixed sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// What a right batcher would hold: each shard's items in order.
struct Expected {
    waiting: BTreeMap<u64, Vec<u64>>,
    in_flight: BTreeMap<u16, Flush<Item>>,
    stored: u64,
    rejected: u64,
}

#[test]
fn random_histories_lose_nothing_double_nothing_and_keep_order() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let (shards, held_max) = (1 + seed % 4, 60);
        let mut batcher =
            Batcher::new(config(shards as u16, 1 + dice.below(16) as usize, held_max));
        let at_fault = |item: &Item| item.number % 37 == 36;
        let mut expected = Expected {
            waiting: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            stored: 0,
            rejected: 0,
        };
        let (mut now, mut taken, mut refused) = (Tick(0), 0, 0);
        for round in 0..3_000 {
            if round == 2_500 {
                batcher.drain();
            }
            match dice.below(5) {
                0 => now = now.after(Span::from_us(dice.below(40_000))),
                1 | 2 if round < 2_800 => {
                    let new = Item { key: dice.below(8), number: taken };
                    match batcher.handle_item(new, now) {
                        Ok(()) => {
                            expected.waiting.entry(new.key % shards).or_default().push(taken);
                            taken += 1;
                        }
                        Err(Full(back)) => {
                            assert_eq!((back, batcher.held()), (new, held_max));
                            refused += 1;
                        }
                    }
                }
                3 => settle(&mut batcher, &mut expected, &mut dice, at_fault, now),
                _ => poll_all(&mut batcher, &mut expected, now, at_fault),
            }
            assert!(batcher.held() <= held_max);
        }
        for _ in 0..1_000 {
            settle(&mut batcher, &mut expected, &mut dice, at_fault, now);
            now = batcher.next_wake().unwrap_or(now).max(now);
            poll_all(&mut batcher, &mut expected, now, at_fault);
        }
        assert_eq!((batcher.held(), expected.in_flight.len()), (0, 0));
        assert_eq!(expected.stored + expected.rejected, taken);
        assert_eq!(expected.rejected, taken / 37);
        assert!(taken > 200 && refused > 0, "{taken} taken, {refused} refused");
    }
}

fn settle(
    batcher: &mut Batcher<Item>,
    expected: &mut Expected,
    dice: &mut Dice,
    at_fault: impl Fn(&Item) -> bool,
    now: Tick,
) {
    let Some((shard, flush)) = expected.in_flight.pop_first() else { return };
    if dice.below(4) == 0 {
        return batcher.handle_flush_failed(flush, FlushFailure::Transient, now);
    }
    if flush.items().iter().any(at_fault) {
        return batcher.handle_flush_failed(flush, FlushFailure::Content, now);
    }
    for item in batcher.handle_flushed(flush) {
        assert_eq!(expected.waiting.get_mut(&u64::from(shard)).unwrap().remove(0), item.number);
        expected.stored += 1;
    }
}

fn poll_all(
    batcher: &mut Batcher<Item>,
    expected: &mut Expected,
    now: Tick,
    at_fault: impl Fn(&Item) -> bool,
) {
    while let Some(action) = batcher.poll(now) {
        match action {
            BatcherAction::Flush(flush) => {
                let waiting = &expected.waiting[&u64::from(flush.shard())];
                assert!(!flush.items().is_empty());
                assert_eq!(numbers(&flush), waiting[..flush.items().len()], "the oldest, in order");
                assert!(expected.in_flight.insert(flush.shard(), flush).is_none(), "one a shard");
            }
            BatcherAction::Rejected(item) => {
                assert!(at_fault(&item));
                let mut lots = expected.waiting.values_mut();
                let lot = lots.find(|lot| lot.contains(&item.number)).expect("was held");
                lot.retain(|&number| number != item.number);
                expected.rejected += 1;
            }
            BatcherAction::Drained => assert_eq!(batcher.held(), 0),
        }
    }
    assert!(batcher.next_wake().is_none_or(|wake| wake > now), "would spin");
}
