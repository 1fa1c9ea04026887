//! Gathers completions into batches: wide enough to be cheap, soon enough not to be felt.
//!
//! What was taken in is given out exactly once at a time, in order within its shard: items move
//! into a [`Flush`], and a flush that failed is handed back whole and goes out again first. A
//! flush whose outcome is unknown is safe to repeat, because a completion that is already stored
//! answers so (H14, H22). When the batcher is full it refuses the item and hands it back: the
//! handler that made it waits, and nothing is dropped.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::{NonZeroU16, NonZeroUsize};

use super::{Backoff, Tick, earlier};
use crate::time::Span;

/// Items of one flush unless told otherwise: `AWA_COMPLETION_BATCH_SIZE` (`R026-31`).
pub const FLUSH_ROWS_DEFAULT: NonZeroUsize = NonZeroUsize::new(512).expect("not zero");
/// How long an item waits for company: `AWA_COMPLETION_FLUSH_MS` (`R026-31`).
pub const FLUSH_AGE_DEFAULT: Span = Span::from_ms(1);
/// Workers from which on four shards are the default (`R026-31`).
const WORKERS_FOR_SHARDS: u32 = 512;
const MANY_SHARDS: NonZeroU16 = NonZeroU16::new(4).expect("not zero");

/// Completion flushers for a process with `max_workers` workers: `AWA_COMPLETION_SHARDS`, 1, and 4
/// from 512 workers on (`R026-31`).
#[must_use]
pub const fn completion_shards(max_workers: u32) -> NonZeroU16 {
    if max_workers < WORKERS_FOR_SHARDS { NonZeroU16::MIN } else { MANY_SHARDS }
}

/// Says which shard an item belongs to. Completions use their claim's batch, so that what was
/// claimed together is completed together and two flushers never meet on one fence.
pub trait Sharded {
    /// Items with equal keys go to the same shard and stay in order.
    fn shard_key(&self) -> u64;
}

/// How a [`Batcher`] batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatcherConfig {
    /// Flushers; each has at most one flush in flight.
    pub shards: NonZeroU16,
    /// A shard that holds so many items flushes at once; also the most items of one flush.
    pub flush_rows: NonZeroUsize,
    /// A shard whose first item is this old flushes.
    pub flush_age: Span,
    /// Items held, queued and in flight, from which on more are refused.
    pub held_max: NonZeroUsize,
    /// The wait after a first failure of a flush.
    pub retry_first: Span,
    /// The longest wait after failures in a row.
    pub retry_longest: Span,
    /// Spreads retries of several processes.
    pub seed: u64,
}

/// What a service says of its batching; what it leaves out is as by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatcherSettings {
    /// See [`BatcherConfig::shards`].
    pub shards: Option<NonZeroU16>,
    /// See [`BatcherConfig::flush_rows`].
    pub flush_rows: Option<NonZeroUsize>,
    /// See [`BatcherConfig::flush_age`].
    pub flush_age: Option<Span>,
}

impl BatcherConfig {
    /// The defaults of `R026-31` for `max_workers` workers.
    #[must_use]
    pub fn for_workers(max_workers: u32, seed: u64) -> Self {
        Self::told(BatcherSettings::default(), max_workers, seed)
    }

    /// As told, for `max_workers` workers. Holds up to twice as many items as there are workers,
    /// and at least two flushes for each shard: one in flight, one gathering.
    #[must_use]
    pub fn told(settings: BatcherSettings, max_workers: u32, seed: u64) -> Self {
        let shards = settings.shards.unwrap_or_else(|| completion_shards(max_workers));
        let flush_rows = settings.flush_rows.unwrap_or(FLUSH_ROWS_DEFAULT);
        let two_flushes = flush_rows.saturating_mul(shards.saturating_add(shards.get()).into());
        let two_each = NonZeroUsize::new((max_workers as usize).saturating_mul(2));
        Self {
            shards,
            flush_rows,
            flush_age: settings.flush_age.unwrap_or(FLUSH_AGE_DEFAULT),
            held_max: two_each.map_or(two_flushes, |two_each| two_flushes.max(two_each)),
            retry_first: Span::from_ms(50),
            retry_longest: Span::from_secs(5),
            seed,
        }
    }
}

/// What the host does next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BatcherAction<T> {
    /// Store these; then [`Batcher::handle_flushed`] or [`Batcher::handle_flush_failed`].
    Flush(Flush<T>),
    /// The server refuses this item alone, so repeating is useless: report it and let the attempt
    /// be rescued. The rest of its batch goes on (law 13).
    Rejected(T),
    /// Draining, and nothing is held any more.
    Drained,
}

/// Items on their way to the server. Only a batcher makes one, and only giving it back opens its
/// shard again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "a flush that isn't handed back holds its shard for ever"]
pub struct Flush<T> {
    shard: u16,
    items: Vec<T>,
}

impl<T> Flush<T> {
    /// The shard that flushes.
    #[must_use]
    pub const fn shard(&self) -> u16 {
        self.shard
    }

    /// What to store, in order; never empty.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

/// Why a flush failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushFailure {
    /// The connection, a lock, the server's state, or an unknown outcome: the same items may well
    /// succeed later.
    Transient,
    /// The server refused the content. The batch is halved until the item at fault is alone.
    Content,
}

/// The batcher is full; the item comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Full<T>(pub T);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lot<T> {
    /// With the tick at which each was taken in; what came back is [`Tick::default`]: long due.
    queued: VecDeque<(Tick, T)>,
    in_flight: usize,
    /// The most items of the next flush: less than `flush_rows` while an item at fault is sought.
    limit: usize,
    backoff: Backoff,
    retry_at: Tick,
}

/// Batches items of type `T`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Batcher<T> {
    config: BatcherConfig,
    lots: Vec<Lot<T>>,
    rejected: VecDeque<T>,
    held: usize,
    /// The shard that `poll` looks at first, so that none is kept waiting by the others.
    turn: usize,
    draining: bool,
    drained_said: bool,
}

impl<T: Sharded> Batcher<T> {
    /// An empty batcher.
    #[must_use]
    pub fn new(config: BatcherConfig) -> Self {
        let lot = |shard: u16| Lot {
            queued: VecDeque::new(),
            in_flight: 0,
            limit: config.flush_rows.get(),
            backoff: Backoff::new(
                config.retry_first,
                config.retry_longest,
                config.seed.wrapping_add(u64::from(shard)),
            ),
            retry_at: Tick::default(),
        };
        Self {
            config,
            lots: (0..config.shards.get()).map(lot).collect(),
            rejected: VecDeque::new(),
            held: 0,
            turn: 0,
            draining: false,
            drained_said: false,
        }
    }

    /// Takes `item` in.
    ///
    /// # Errors
    /// [`Full`] with the item while [`BatcherConfig::held_max`] are held: offer it again after the
    /// next flush.
    pub fn handle_item(&mut self, item: T, now: Tick) -> Result<(), Full<T>> {
        if self.held >= self.config.held_max.get() {
            return Err(Full(item));
        }
        let shard = item.shard_key() % self.lots.len() as u64;
        self.lots[shard as usize].queued.push_back((now, item));
        self.held += 1;
        self.drained_said = false;
        Ok(())
    }

    /// The flush is stored. Gives its items back to be answered.
    pub fn handle_flushed(&mut self, flush: Flush<T>) -> Vec<T> {
        let lot = &mut self.lots[usize::from(flush.shard)];
        lot.in_flight = 0;
        lot.backoff.succeeded();
        lot.limit = lot.limit.saturating_mul(2).min(self.config.flush_rows.get());
        self.held -= flush.items.len();
        flush.items
    }

    /// The flush is not stored, or nobody knows. Its items go out again before any other of their
    /// shard.
    pub fn handle_flush_failed(&mut self, flush: Flush<T>, failure: FlushFailure, now: Tick) {
        let lot = &mut self.lots[usize::from(flush.shard)];
        lot.in_flight = 0;
        match failure {
            FlushFailure::Transient => lot.retry_at = now.after(lot.backoff.failed()),
            FlushFailure::Content if flush.items.len() == 1 => {
                self.rejected.extend(flush.items);
                return;
            }
            FlushFailure::Content => lot.limit = flush.items.len() / 2,
        }
        for item in flush.items.into_iter().rev() {
            lot.queued.push_front((Tick::default(), item));
        }
    }

    /// From now on nothing waits for company. Items are still taken in: handlers that run on
    /// finish during a drain.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// What to do now. Call until `None`.
    pub fn poll(&mut self, now: Tick) -> Option<BatcherAction<T>> {
        if let Some(item) = self.rejected.pop_front() {
            self.held -= 1;
            return Some(BatcherAction::Rejected(item));
        }
        let shards = self.lots.len();
        for shard in (0..shards).map(|n| (self.turn + n) % shards) {
            if self.due(&self.lots[shard]).is_some_and(|due| due <= now) {
                self.turn = (shard + 1) % shards;
                let lot = &mut self.lots[shard];
                lot.in_flight = lot.queued.len().min(lot.limit);
                let items = lot.queued.drain(..lot.in_flight).map(|(_, item)| item).collect();
                return Some(BatcherAction::Flush(Flush { shard: shard as u16, items }));
            }
        }
        if self.draining && self.held == 0 && !self.drained_said {
            self.drained_said = true;
            return Some(BatcherAction::Drained);
        }
        None
    }

    /// When to poll again if nothing comes before.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        let drained = self.draining && self.held == 0 && !self.drained_said;
        let at_once = (drained || !self.rejected.is_empty()).then(Tick::default);
        self.lots.iter().fold(at_once, |wake, lot| earlier(wake, self.due(lot)))
    }

    /// Items held: queued, in flight or rejected and not yet given out.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    fn due(&self, lot: &Lot<T>) -> Option<Tick> {
        let (taken_in, _) = lot.queued.front().filter(|_| lot.in_flight == 0)?;
        let at_once = self.draining || lot.queued.len() >= lot.limit;
        let due = if at_once { Tick::default() } else { taken_in.after(self.config.flush_age) };
        Some(due.max(lot.retry_at))
    }
}
