//! Statements of the hot steps, as far as they can be judged without a server.
#![allow(clippy::unwrap_used)]

use awa_core::limits::{ATTEMPTS_DEFAULT, CLAIM_BYTES_MAX, ERRORS_KEPT_MAX};
use awa_core::{
    BatchId, Ending, Exit, Generation, Instant, JobId, Kind, LaneId, LaneSeq, NewJob, Place,
    QueueName, Receipt, RunLease, Sample, SchemaName, Segment, Slot, Snapshot, Span, Step, Window,
    Xid,
};
use awa_sqlgen::{Json, Mode, Params, Sql, TABLES};
use bytes::{Buf, Bytes, BytesMut};
use postgres_types::{FromSqlOwned, Type};

/// A name that looks like everything it must not be taken for.
const ODD_SCHEMA: &str = r#"a"b'c\d $awa$ {slot} {schema}"#;

fn sql(schema: &str) -> Sql {
    Sql::new(SchemaName::new(schema).unwrap())
}

fn job(args: &str, payload: Option<&str>) -> NewJob {
    let kind = Kind::new("send").unwrap();
    let payload = payload.map(str::to_owned);
    NewJob::new(LaneId(4), kind, args.to_owned(), ATTEMPTS_DEFAULT.into(), payload).unwrap()
}

fn receipt(batch: i64, index: u16) -> Receipt {
    let (job, run_lease) = (JobId(batch + i64::from(index)), RunLease(1));
    let (batch, index) = (BatchId(batch), Place::new(index.into()).unwrap());
    Receipt { claim_slot: Slot(2), batch, index, job, run_lease }
}

fn failed(receipt: Receipt, error: &str) -> Exit {
    Exit { receipt, ending: Ending::Failed { error: error.to_owned() } }
}

fn window(samples: i64) -> Window {
    let sample = |n: i64| Sample { position: LaneSeq(10 * n), xid: Xid(700 + n.cast_unsigned()) };
    Window {
        seen: Snapshot::parse("700:703:701"),
        frontier: Some(LaneSeq(9)),
        samples: (0..samples).map(sample).collect(),
    }
}

fn steps() -> Vec<Step> {
    let queue = QueueName::new("mail").unwrap();
    let (lane, to) = (LaneId(4), Segment { slot: Slot(3), generation: Generation(9) });
    let (one, two) = (job("1", None), job("2", Some(r#"{"tags":["a"]}"#)));
    let jobs = vec![one.clone(), two.clone()];
    let deferred = vec![(two, Instant::LAST)];
    let exits = vec![failed(receipt(8192, 1), "no route")];
    let deadline = Some(Span::FOREVER);
    vec![
        Step::DeclareQueue { queue: queue.clone(), shards: 2 },
        Step::FindLanes { queue },
        Step::EnqueueReady { jobs: vec![] },
        Step::EnqueueReady { jobs: vec![one] },
        Step::EnqueueReady { jobs: jobs.clone() },
        Step::ReadCursor,
        Step::CopyReady { to, jobs },
        Step::EnqueueDeferred { jobs: deferred },
        Step::PromoteDue { limit: 100 },
        Step::ReadNextDue,
        Step::Wake { lanes: vec![lane] },
        Step::LockLane { lane },
        Step::ReadPosition,
        Step::ClaimReady {
            lane,
            window: window(2),
            limit: 512,
            bytes_max: CLAIM_BYTES_MAX,
            deadline,
        },
        Step::ReadOwnXid,
        Step::PollLanes { lanes: vec![(lane, Window::default())] },
        Step::Fence { batches: vec![BatchId(4096)] },
        Step::CompleteCompact { receipts: vec![receipt(4096, 1)] },
        Step::HandBack { receipts: vec![receipt(8192, 1)] },
        Step::CloseAttempts { exits },
    ]
}

fn params(step: &Step) -> Params {
    match sql("awa").render(step).mode {
        Mode::Bind(params) | Mode::PlanAndBind(params) => params,
        Mode::Script | Mode::CopyIn(_) => panic!("{step} binds nothing"),
    }
}

/// The value that the parameter at the zero-based `place` has on the wire.
fn sent<T: FromSqlOwned>(params: &Params, place: usize, ty: Type) -> T {
    let mut raw = BytesMut::new();
    params[place].to_sql_checked(&ty, &mut raw).unwrap();
    T::from_sql(&ty, &raw).unwrap()
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
        let statement = sql("awa").render(&step);
        let given = match statement.mode {
            Mode::Bind(params) | Mode::PlanAndBind(params) => params.len(),
            Mode::Script | Mode::CopyIn(_) => 0,
        };
        assert_eq!(highest_parameter(&statement.sql), given, "{step}: {}", statement.sql);
        assert!((1..=given).all(|n| statement.sql.contains(&format!("${n}"))), "{step}");
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

/// `search_path` is never trusted: a table is named with its schema.
#[test]
fn every_table_is_named_with_its_schema() {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    for step in steps() {
        let text = sql("awa").render(&step).sql;
        for table in TABLES {
            for (at, name) in text.match_indices(table.name) {
                let (before, after) = (&text[..at], &text[at + name.len()..]);
                if !before.ends_with(is_part) && !after.starts_with(is_part) {
                    assert!(before.ends_with("\"awa\"."), "{step}: {name} in {text}");
                }
            }
        }
    }
}

/// H55: a schema's name stands as it is, quoted, and ends no text that it stands in.
#[test]
fn an_odd_schema_changes_only_the_schema() {
    let ident = r#""a""b'c\d $awa$ {slot} {schema}""#;
    let class = |schema: &str| {
        let fence = sql(schema).render(&Step::Fence { batches: vec![] }).sql;
        fence.split_once('(').and_then(|(_, rest)| rest.split_once(',')).unwrap().0.to_owned()
    };
    assert_ne!(class(ODD_SCHEMA), class("awa"));
    for step in steps() {
        let mut text = sql(ODD_SCHEMA).render(&step).sql.to_string();
        for sequence in ["position_seq", "lease_claim_receipt_id_seq"] {
            let literal = format!(r#"E'"a""b''c\\d $awa$ {{slot}} {{schema}}".{sequence}'"#);
            text = text.replace(&literal, &format!("'\"awa\".{sequence}'"));
        }
        let text = text.replace(ident, "\"awa\"").replace(&class(ODD_SCHEMA), &class("awa"));
        assert_eq!(text, &*sql("awa").render(&step).sql, "{step}");
    }
}

/// Law 3 of visibility: the column's default draws the transaction's id before the position, so no
/// statement that inserts ready rows names the position itself.
#[test]
fn positions_are_drawn_by_the_columns_default() {
    for step in steps() {
        let text = sql("awa").render(&step).sql;
        for table in ["insert into \"awa\".ready_entries", "copy \"awa\".ready_entries"] {
            for (at, _) in text.match_indices(table) {
                let columns = &text[at + table.len()..];
                let columns = &columns[..columns.find(')').unwrap()];
                assert!(columns.contains("lane_id") && !columns.contains("lane_seq"), "{step}");
            }
        }
    }
}

#[test]
fn the_last_instant_is_cores() {
    let text = sql("awa").render(&steps().pop().unwrap()).sql;
    assert!(text.contains(&Instant::LAST.unix_us().to_string()), "{text}");
}

#[test]
fn a_job_alone_goes_as_scalars_and_several_as_arrays() {
    let one = params(&Step::EnqueueReady { jobs: vec![job("[1]", None)] });
    assert_eq!(sent::<i64>(&one, 0, Type::INT8), 4);
    assert_eq!(sent::<Json>(&one, 2, Type::JSONB).0, "[1]");
    let two = params(&Step::EnqueueReady { jobs: vec![job("[1]", None), job("2", Some("{}"))] });
    assert_eq!(sent::<Vec<i64>>(&two, 0, Type::INT8_ARRAY), [4, 4]);
    assert_eq!(sent::<Vec<String>>(&two, 1, Type::TEXT_ARRAY), ["send", "send"]);
    let payloads: Vec<Option<Json>> = sent(&two, 4, Type::JSONB_ARRAY);
    assert_eq!(payloads, [None, Some(Json("{}".to_owned()))]);
}

fn take_field(row: &mut Bytes) -> Option<Bytes> {
    let size = row.get_i32();
    usize::try_from(size).ok().map(|size| row.split_to(size))
}

#[test]
fn a_copy_is_well_formed() {
    let to = Segment { slot: Slot(3), generation: Generation(9) };
    let jobs = vec![job("[1]", None), job("\"é\"", Some("{}"))];
    let statement = sql("awa").render(&Step::CopyReady { to, jobs: jobs.clone() });
    let Mode::CopyIn(mut rows) = statement.mode else { panic!("a copy copies") };
    assert_eq!(&rows.split_to(19)[..], b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
    let named = statement.sql.split_once('(').unwrap().1.split_once(')').unwrap().0;
    let named: Vec<&str> = named.split(',').map(str::trim).collect();
    for job in &jobs {
        assert_eq!(usize::try_from(rows.get_i16()).unwrap(), named.len());
        for column in &named {
            let json = |text: &str| Some(Bytes::from([b"\x01", text.as_bytes()].concat()));
            let due = match *column {
                "ready_slot" => Some(Bytes::copy_from_slice(&3_i32.to_be_bytes())),
                "max_attempts" => Some(Bytes::copy_from_slice(&job.max_attempts.to_be_bytes())),
                "ready_generation" => Some(Bytes::copy_from_slice(&9_i64.to_be_bytes())),
                "lane_id" => Some(Bytes::copy_from_slice(&4_i64.to_be_bytes())),
                "kind" => Some(Bytes::from_static(b"send")),
                "args" => json(&job.args),
                "payload" => job.payload.as_deref().and_then(json),
                other => panic!("column {other}"),
            };
            assert_eq!(take_field(&mut rows), due, "{column}");
        }
    }
    assert_eq!(rows.get_i16(), -1);
    assert!(rows.is_empty());
}

/// Law 8: fences are taken in one order by everybody, each once.
#[test]
fn fences_ascend() {
    let far = 4096_i64 << 33;
    let batches = [far + 8192, 4096, 12_288, 4096].map(BatchId).to_vec();
    let keys: Vec<i32> = sent(&params(&Step::Fence { batches }), 0, Type::INT4_ARRAY);
    assert_eq!(keys, [1, 2, 3]);
}

/// Locks of one key never meet locks of two, so a lane is never taken for a claim's fence.
#[test]
fn lanes_and_fences_use_different_key_spaces() {
    let lock = |step: Step| {
        let text = sql("awa").render(&step).sql;
        let call = text.split_once("pg_advisory_xact_lock(").unwrap().1;
        let mut depth = 1;
        let end = call.find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        call[..end.unwrap()].matches(',').count() + 1
    };
    assert_eq!(lock(Step::LockLane { lane: LaneId(1) }), 1);
    assert_eq!(lock(Step::Fence { batches: vec![BatchId(1)] }), 2);
}

#[test]
fn receipts_are_grouped_by_claim_and_named_once() {
    let receipts =
        [(8192, 3), (4096, 2), (8192, 1), (4096, 2)].map(|(b, i)| receipt(b, i)).to_vec();
    let params = params(&Step::CompleteCompact { receipts });
    assert_eq!(sent::<Vec<i32>>(&params, 0, Type::INT4_ARRAY), [2, 2]);
    assert_eq!(sent::<Vec<i64>>(&params, 1, Type::INT8_ARRAY), [4096, 8192]);
    assert_eq!(sent::<Vec<i32>>(&params, 2, Type::INT4_ARRAY), [1, 2]);
    assert_eq!(sent::<Vec<i32>>(&params, 3, Type::INT4_ARRAY), [1, 3]);
    assert_eq!(sent::<Vec<i32>>(&params, 4, Type::INT4_ARRAY), [2, 1, 3]);
    assert_eq!(sent::<Vec<i64>>(&params, 5, Type::INT8_ARRAY), [4098, 8193, 8195]);
    assert_eq!(sent::<Vec<i64>>(&params, 6, Type::INT8_ARRAY), [1, 1, 1]);
}

#[test]
fn the_first_ending_of_an_attempt_counts() {
    let retry = Ending::Retry { error: "later".to_owned(), delay: Span::from_us(7) };
    let exits = vec![
        failed(receipt(4096, 2), "first"),
        Exit { receipt: receipt(4096, 1), ending: retry },
        failed(receipt(4096, 2), "second"),
        Exit { receipt: receipt(4096, 3), ending: Ending::Completed },
    ];
    let params = params(&Step::CloseAttempts { exits });
    let optional = |place, ty| sent::<Vec<Option<String>>>(&params, place, ty);
    assert_eq!(sent::<Vec<i32>>(&params, 4, Type::INT4_ARRAY), [1, 2, 3]);
    assert_eq!(sent::<Vec<String>>(&params, 7, Type::TEXT_ARRAY), ["retry", "failed", "completed"]);
    let errors = optional(8, Type::TEXT_ARRAY);
    assert_eq!(errors, [Some("later".to_owned()), Some("first".to_owned()), None]);
    assert_eq!(sent::<Vec<Option<i64>>>(&params, 9, Type::INT8_ARRAY), [Some(7), None, None]);
    assert_eq!(sent::<i64>(&params, 10, Type::INT8), ERRORS_KEPT_MAX as i64);
}

#[test]
fn a_claim_sends_its_window() {
    let (lane, deadline) = (LaneId(4), Some(Span::from_us(5)));
    let step = Step::ClaimReady { lane, window: window(2), limit: 7, bytes_max: 99, deadline };
    let sent_params = params(&step);
    assert_eq!(sent::<Option<String>>(&sent_params, 1, Type::TEXT).as_deref(), Some("700:703:701"));
    assert_eq!(sent::<Option<i64>>(&sent_params, 2, Type::INT8), Some(9));
    assert_eq!(sent::<Vec<i64>>(&sent_params, 3, Type::INT8_ARRAY), [0, 10]);
    assert_eq!(sent::<Vec<i64>>(&sent_params, 4, Type::INT8_ARRAY), [700, 701]);
    assert_eq!(sent::<i64>(&sent_params, 5, Type::INT8), 7);
    assert_eq!(sent::<Option<i64>>(&sent_params, 7, Type::INT8), Some(5));
}

/// Each lane's samples are a slice of the arrays that hold all of them.
#[test]
fn a_poll_sends_each_lanes_samples() {
    let lanes =
        vec![(LaneId(1), window(2)), (LaneId(2), Window::default()), (LaneId(3), window(1))];
    let params = params(&Step::PollLanes { lanes });
    assert_eq!(sent::<Vec<i64>>(&params, 0, Type::INT8_ARRAY), [1, 2, 3]);
    assert_eq!(sent::<Vec<Option<i64>>>(&params, 2, Type::INT8_ARRAY), [Some(9), None, Some(9)]);
    assert_eq!(sent::<Vec<i32>>(&params, 3, Type::INT4_ARRAY), [1, 3, 3]);
    assert_eq!(sent::<Vec<i32>>(&params, 4, Type::INT4_ARRAY), [2, 2, 3]);
    assert_eq!(sent::<Vec<i64>>(&params, 5, Type::INT8_ARRAY), [0, 10, 0]);
    assert_eq!(sent::<Vec<i64>>(&params, 6, Type::INT8_ARRAY), [700, 701, 700]);
}

/// PostgreSQL refuses payloads of 8,000 bytes; what is told is heard.
#[test]
fn wakes_fit_and_are_heard() {
    let lanes: Vec<LaneId> = (0..3000).map(|n| LaneId(i64::MAX - n)).collect();
    let params = params(&Step::Wake { lanes: lanes.clone() });
    let payloads: Vec<String> = sent(&params, 1, Type::TEXT_ARRAY);
    assert!(payloads.iter().all(|payload| payload.len() < 8_000));
    let heard: Vec<LaneId> = payloads.iter().flat_map(|p| Sql::woken_lanes(p)).collect();
    assert_eq!(heard, lanes);
    let channel: String = sent(&params, 0, Type::TEXT);
    assert!(sql("awa").listen().contains(&channel) && channel.len() < 64);
}
