//! The `awa` command.
#![expect(dead_code, unused_imports, reason = "the commands that use these parts come next")]

mod demo;
mod draw;
mod ndjson;
mod wording;

fn main() {}
