//! Every bound of the engine in one place. A value outside is refused with a [`crate::UserError`]
//! that names the field; nothing is clamped.

/// Jobs that one claim may take; receipts of one batch are this far apart from the next batch's.
pub const CLAIM_ROWS_MAX: u16 = 4096;
/// Jobs that one claim takes unless told otherwise (`R026-31`).
pub const CLAIM_ROWS_DEFAULT: u16 = 512;
/// Bytes of args that one claim gathers before it stops early (H47).
pub const CLAIM_BYTES_MAX: i64 = 64 << 20;
/// The least urgent priority; 1 is the most urgent.
pub const PRIORITY_MAX: i16 = 4;
/// The priority of a job that names none.
pub const PRIORITY_DEFAULT: i16 = 2;
/// Shards a queue may have.
pub const SHARDS_MAX: i16 = 64;
/// Attempts a job may be given; the column is a `smallint`.
pub const ATTEMPTS_MAX: i16 = 32_767;
/// Attempts a job is given unless told otherwise.
pub const ATTEMPTS_DEFAULT: i16 = 25;
/// Bytes of a job's args as JSON text.
pub const ARGS_BYTES_MAX: usize = 16 << 20;
/// Levels of nesting in args.
pub const ARGS_DEPTH_MAX: usize = 256;
/// Bytes of a queue's name or a kind.
pub const NAME_BYTES_MAX: usize = 200;
/// Bytes of a schema's name: PostgreSQL would cut a longer identifier silently.
pub const SCHEMA_BYTES_MAX: usize = 63;
/// Bytes of one attempt's error text that are kept; the rest is cut at a character and said so.
pub const ERROR_BYTES_MAX: usize = 8 << 10;
/// Errors kept of one job: the newest ones (H20).
pub const ERRORS_KEPT_MAX: usize = 16;
/// Jobs in one enqueue call; COPY splits larger inputs.
pub const ENQUEUE_ROWS_MAX: usize = 100_000;
/// Rows that one cold operation (retry, discard, promote) moves a transaction.
pub const MOVE_ROWS_MAX: i64 = 10_000;
/// Overdue attempts that one rescue ends a transaction.
pub const RESCUE_ROWS_MAX: i64 = 1_000;
/// Slots of the queue ring (`R026-31`).
pub const QUEUE_SLOTS: i32 = 16;
/// Slots of the lease ring (`R026-31`).
pub const LEASE_SLOTS: i32 = 8;
/// Slots of the claim ring (`R026-31`).
pub const CLAIM_SLOTS: i32 = 8;
/// Samples of (position, own transaction id) that a claimer remembers for each lane.
pub const SAMPLES_KEPT_MAX: usize = 64;
/// Rows of a terminal counter for each (slot, lane).
pub const COUNTER_BUCKETS: i16 = 8;
/// How long prune waits for an exclusive lock before it says `Blocked`.
pub const LOCK_TIMEOUT_MS: u32 = 50;
/// Slots whose deltas one tick of maintenance folds (`R026-31`).
pub const ROLLUP_SLOTS_MAX: usize = 4;
