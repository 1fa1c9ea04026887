//! Runs a PostgreSQL server and prints how to connect to it.
//!
//! It runs until standard input ends or this program is interrupted or killed.

use std::io::{self, Write};
use std::process::ExitCode;

use awa_devpg::{Options, Server};

const USAGE: &str = "\
usage: awa-devpg [OPTION...]

Prints the connection string of a PostgreSQL server, and runs the server until standard input ends.

  --version N      this major version only, 14 to 18; without it, $DATABASE_URL is used if set
  --set NAME=VALUE a setting for the server; may be repeated
  --private        start a server also when $DATABASE_URL is set
  --fetched        use a downloaded server, not an installed one
  --offline        don't download
  --cache DIR      where downloaded servers are kept
  --durable        flush to disk as a production server does
  --keep           leave the data directory there in the end";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("awa-devpg: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("awa-devpg: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::acquire(options)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", server.url())?;
    stdout.flush()?;
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(server.stop()?)
}

fn parse(args: Vec<String>) -> Result<Options, String> {
    let mut options = Options::default();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--version" => {
                let number = value()?;
                let parsed = number.parse();
                options.version =
                    Some(parsed.map_err(|_| format!("{number:?} is no major version"))?);
            }
            "--set" => {
                let text = value()?;
                let (name, value) =
                    text.split_once('=').ok_or_else(|| format!("{text:?} is no NAME=VALUE"))?;
                options.settings.push((name.to_owned(), value.to_owned()));
            }
            "--cache" => options.cache_dir = Some(value()?.into()),
            "--private" => options.ignore_database_url = true,
            "--fetched" => options.ignore_installed = true,
            "--offline" => options.offline = true,
            "--durable" => options.durable = true,
            "--keep" => options.keep = true,
            unknown => return Err(format!("unknown option {unknown:?}")),
        }
    }
    Ok(options)
}
