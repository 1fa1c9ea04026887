//! Statements of the cold steps, as far as they can be judged without a server.
#![allow(clippy::unwrap_used)]

use awa_core::limits::{COUNTER_BUCKETS, QUEUE_SLOTS};
use awa_core::rules::Cutoff;
use awa_core::{
    Gate, Generation, Instant, JobId, JobState, Kind, LaneId, LaneSeq, ListFilter, QueueName, Ring,
    SchemaName, Segment, Slot, Step, TerminalFilter, TerminalRef,
};
use awa_sqlgen::{Mode, Sql, Statement, TABLES};

/// A name that looks like everything it must not be taken for.
const ODD_SCHEMA: &str = r#"a"b'c\d $awa$ {slot} {schema}"#;

fn queue() -> QueueName {
    QueueName::new("mail").unwrap()
}

fn segment(slot: i32) -> Segment {
    Segment { slot: Slot(slot), generation: Generation(9) }
}

fn ring_steps(ring: Ring) -> Vec<Step> {
    let slot = Slot(3);
    vec![
        Step::LockRing { ring },
        Step::ObserveRing { ring },
        Step::LockSlot { ring, slot },
        Step::Exclude { ring, slot, timeout_ms: 50 },
        Step::Truncate { ring, slot },
        Step::MarkPruned { ring, slot },
        Step::Rotate { ring, seal: segment(3), open: segment(4) },
        Step::ObserveLoads { ring, cutoff: None },
    ]
}

fn prune_steps() -> Vec<Step> {
    let (slot, cutoff) = (Slot(3), Cutoff(Instant::from_unix_us(7)));
    let gates = [
        Gate::PendingReady(slot),
        Gate::OpenReceipts(slot),
        Gate::ActiveLeases(slot),
        Gate::OpenClaims(slot),
        Gate::HeldLeases(slot),
        Gate::PinnedHorizon,
    ];
    let mut steps: Vec<_> = gates.into_iter().map(|gate| Step::Probe { gate }).collect();
    steps.extend([
        Step::CountClaims { slot },
        Step::ExcludeWriters { slot, timeout_ms: 50 },
        Step::SurveyTerminal { slot, cutoff: Some(cutoff) },
        Step::CarryForward { from: slot, to: segment(4), cutoff },
        Step::FoldRollup { slot, cutoff: None },
        Step::FindDeltas,
        Step::ExcludeDeltas { slot, timeout_ms: 50 },
        Step::FoldDeltas { slot },
        Step::TruncateDeltas { slot },
        Step::ExcludeCounters { timeout_ms: 50 },
        Step::RebuildCounters,
        Step::SetTrust { trusted: true },
        Step::ReadCounts { queue: queue() },
        Step::ReadPrunedFailed { queue: queue() },
    ]);
    steps
}

fn operator_steps() -> Vec<Step> {
    let (job, lane, lane_seq, slot) = (JobId(1), LaneId(2), LaneSeq(3), Slot(3));
    let rows = vec![TerminalRef { job, lane, lane_seq }];
    let mut steps = vec![
        Step::LocateJob { job },
        Step::TombstoneReady { slot, lane, lane_seq },
        Step::CancelDeferred { job },
        Step::RetryTerminal { rows: rows.clone() },
        Step::DiscardTerminal { rows },
        Step::HideCompleted { slot, lane, lane_seq },
        Step::LoadJob { job },
    ];
    let filters = [
        TerminalFilter::Job(job),
        TerminalFilter::Kind(Kind::new("send").unwrap()),
        TerminalFilter::Queue(queue()),
    ];
    steps.extend(filters.map(|filter| Step::MatchTerminal { filter, after: None, limit: 10 }));
    steps.extend(JobState::ALL.map(|state| {
        let filter =
            ListFilter { queue: Some(queue()), kind: None, state, before: None, limit: 50 };
        Step::ListJobs { filter }
    }));
    steps
}

fn steps() -> Vec<Step> {
    let rings = Ring::ALL.into_iter().flat_map(ring_steps);
    rings.chain(prune_steps()).chain(operator_steps()).collect()
}

fn sql(schema: &str) -> Sql {
    Sql::new(SchemaName::new(schema).unwrap())
}

/// The largest `n` of a `$n` in the text.
fn highest_parameter(text: &str) -> usize {
    let numbers = text.split('$').skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    });
    numbers.max().unwrap_or(0)
}

#[test]
fn every_parameter_is_given_and_used() {
    for step in steps() {
        let Statement { sql, mode } = sql("awa").render(&step);
        let given = match mode {
            Mode::Bind(params) | Mode::PlanAndBind(params) => params.len(),
            Mode::Script => 0,
            Mode::CopyIn(_) => panic!("{step} copies"),
        };
        assert_eq!(highest_parameter(&sql), given, "{step}: {sql}");
        assert!((1..=given).all(|n| sql.contains(&format!("${n}"))), "{step}: {sql}");
    }
}

#[test]
fn nothing_is_left_to_fill_in() {
    for step in steps() {
        let text = sql("awa").render(&step).sql;
        for (at, _) in text.match_indices('{') {
            let word: String = text[at + 1..].chars().take_while(|c| *c != '}').collect();
            let is_word =
                !word.is_empty() && word.chars().all(|c| c == '_' || c.is_ascii_lowercase());
            assert!(!is_word, "{step} leaves {{{word}}}");
        }
        assert!(!text.lines().any(|line| line.trim_start().starts_with("--")), "{step}");
    }
}

/// Whether `at` begins a whole word of `text`, digits of a child's slot aside.
fn is_table(text: &str, at: usize, name: &str) -> bool {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let after =
        text[at + name.len()..].trim_start_matches(|c: char| c == '_' || c.is_ascii_digit());
    !text[..at].ends_with(is_part) && !after.starts_with(is_part)
}

/// `search_path` is never trusted: a table is named with its schema, or as text that is given one.
#[test]
fn every_table_is_named_with_its_schema() {
    for step in steps() {
        let text = sql("awa").render(&step).sql;
        let mut named = 0;
        for table in TABLES {
            for (at, _) in text.match_indices(table.name) {
                if is_table(&text, at, table.name) {
                    let before = &text[..at];
                    named += 1;
                    assert!(
                        before.ends_with("\"awa\".") || before.ends_with('\''),
                        "{step}: {}",
                        table.name
                    );
                }
            }
        }
        let needs_none = matches!(step, Step::Probe { gate: Gate::PinnedHorizon });
        assert!(needs_none || named > 0, "{step} names no table");
    }
}

/// H55: a schema's name stands as it is, quoted, and ends no text that it stands in.
#[test]
fn an_odd_schema_changes_only_the_schema() {
    let (ident, literal) =
        (r#""a""b'c\d $awa$ {slot} {schema}""#, r#"E'a"b''c\\d $awa$ {slot} {schema}'"#);
    for step in steps() {
        let odd = sql(ODD_SCHEMA).render(&step).sql;
        let sequence = r#"E'"a""b''c\\d $awa$ {slot} {schema}".position_seq'"#;
        let plain = odd
            .replace(sequence, r#"'"awa".position_seq'"#)
            .replace(ident, "\"awa\"")
            .replace(literal, "'awa'")
            .replace("$qawa$", "$awa$");
        assert_eq!(plain, &*sql("awa").render(&step).sql, "{step}");
    }
}

/// Law 14, `R032-14`: whoever locks several tables takes them in the registry's order.
#[test]
fn locks_are_taken_in_the_order_of_the_registry() {
    let excludes = [
        Step::Exclude { ring: Ring::Queue, slot: Slot(3), timeout_ms: 50 },
        Step::Exclude { ring: Ring::Claim, slot: Slot(3), timeout_ms: 50 },
        Step::ExcludeWriters { slot: Slot(3), timeout_ms: 50 },
        Step::ExcludeCounters { timeout_ms: 50 },
    ];
    for step in excludes {
        let text = sql("awa").render(&step).sql;
        // Rows of `place, table, mode`.
        let (_, rows) = text.split_once("(values ").unwrap();
        let (rows, _) = rows.split_once(") as ").unwrap();
        let rows = rows.split(", '").filter_map(|part| part.strip_suffix('\''));
        let places: Vec<usize> = rows.map(place_of).collect();
        assert!(places.len() > 2 && places.is_sorted(), "{step}: {places:?}");
    }
    let counters = sql("awa").render(&Step::ExcludeCounters { timeout_ms: 50 }).sql;
    assert!(counters.contains(&format!("'done_entries_{}', 'share'", QUEUE_SLOTS - 1)));
    assert!(counters.contains("'queue_terminal_live_counts', 'access exclusive'"));
}

fn place_of(table: &str) -> usize {
    let parent = table.trim_end_matches(|c: char| c == '_' || c.is_ascii_digit());
    let place = TABLES.iter().position(|t| t.name == parent);
    place.unwrap_or_else(|| panic!("{table} is in no registry"))
}

/// `R026-22`: the bucket of SQL is the bucket of `core`.
#[test]
fn counters_have_as_many_buckets_as_core_says() {
    let (n, cutoff) = (COUNTER_BUCKETS, Cutoff(Instant::FIRST));
    let step = Step::CarryForward { from: Slot(0), to: segment(1), cutoff };
    let text = sql("awa").render(&step).sql;
    assert!(text.contains(&format!("((d.job_id % {n} + {n}) % {n})::smallint")), "{text}");
}
