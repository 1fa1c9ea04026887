//! The text of every statement, as it goes over the wire. A snapshot is re-approved by one who can
//! say why it changed: `cargo insta review`, or `INSTA_UPDATE=always cargo test` and a look at the diff.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use awa_core::SchemaName;
use awa_model_tests::samples::one_of_each;
use awa_sqlgen::{Mode, Sql};

#[test]
fn every_statement_is_as_approved() {
    let sql = Sql::new(SchemaName::new("awa").unwrap());
    let mut spellings: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for step in one_of_each().unwrap() {
        let statement = sql.render(&step);
        let mode = match &statement.mode {
            Mode::Bind(params) | Mode::PlanAndBind(params) => {
                format!("{} parameters", params.len())
            }
            Mode::Script => "script".to_owned(),
            Mode::CopyIn(data) => format!("copy of {} bytes", data.len()),
        };
        let text = format!("-- {step} ({mode})\n{}", statement.sql.trim_end());
        let of_step = spellings.entry(step.name()).or_default();
        let known = |t: &String| t.lines().skip(1).eq(text.lines().skip(1));
        if !of_step.iter().any(known) {
            of_step.push(text);
        }
    }
    for (name, texts) in spellings {
        insta::assert_snapshot!(name, texts.join("\n\n"));
    }
}

/// A statement binds as many parameters as it names.
#[test]
fn parameters_are_as_many_as_named() {
    let sql = Sql::new(SchemaName::new("awa").unwrap());
    for step in one_of_each().unwrap() {
        let statement = sql.render(&step);
        let named = (1..=32).rev().find(|n| names(&statement.sql, *n)).unwrap_or(0);
        match &statement.mode {
            Mode::Bind(params) | Mode::PlanAndBind(params) => {
                assert_eq!(params.len(), named, "{step}")
            }
            Mode::Script | Mode::CopyIn(_) => assert_eq!(named, 0, "{step}"),
        }
    }
}

fn names(sql: &str, n: usize) -> bool {
    let word = format!("${n}");
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    sql.match_indices(&word).any(|(at, _)| ends(&sql[at + word.len()..]))
}

/// Law 19: every table is qualified by the quoted schema, whatever the schema is called.
#[test]
fn no_table_is_left_to_the_search_path() {
    let sql = Sql::new(SchemaName::new("odd \"name\"").unwrap());
    let tables: Vec<_> = awa_sqlgen::TABLES.iter().map(|t| t.name).collect();
    for step in one_of_each().unwrap() {
        let text = sql.render(&step).sql;
        for table in &tables {
            for verb in ["from", "join", "into", "update", "table only", "table", "only"] {
                assert!(!text.contains(&format!("{verb} {table}")), "{step}: {table} in {text}");
            }
        }
    }
}
