//! The `awa` command. Exit codes: 0 done; 1 failed; 2 wrong usage; 3 the state of the job, slot or ring
//! does not allow it and nothing was changed; 4 no such job; 65 the input is malformed, or names a queue
//! or schema that is not there, and nothing was written.

mod commands;
mod demo;
mod draw;
mod ndjson;
mod options;
mod output;
mod progress;
mod wording;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let options = options::Options::parse();
    output::start_log();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(options)),
        Err(error) => Err(output::Failed::other("start a runtime", error)),
    };
    match done {
        Ok(code) => code,
        Err(failed) => {
            eprintln!("awa: {failed}");
            failed.code()
        }
    }
}
