//! A private server: what it is like while it is there, and that it is gone afterwards, however
//! its owner ended.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use awa_devpg::{DevPgError, Options, Server};
use common::{
    Holder, Scratch, ask, assert_gone, bin_of, chmod, copy_of_program, directory_of, eventually,
    is_root, nobody, output, processes_naming, program, signal, try_to_ask,
};
use tokio_postgres::error::SqlState;

/// Starts a private server, whatever the environment of the tests says.
fn private(options: Options) -> Server {
    let server = Server::acquire(&Options { ignore_database_url: true, ..options }).unwrap();
    assert!(server.is_private());
    server
}

fn settings(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_started_server_answers_and_a_stopped_one_is_gone() {
    let server = private(Options::default());
    let directory = directory_of(server.url());
    assert_eq!(server.data_dir(), Some(directory.join("data").as_path()));
    assert_eq!(ask(server.url(), "select current_user || '@' || current_database()"), {
        "postgres@postgres"
    });
    let version = server.version().unwrap();
    let asked = ask(server.url(), "show server_version_num");
    assert_eq!(asked, (version.major * 10_000 + version.minor).to_string());
    let lock_file = fs::read_to_string(directory.join("data/postmaster.pid")).unwrap();
    assert_eq!(lock_file.lines().next().unwrap(), server.pid().unwrap().to_string());
    assert!(!processes_naming(&directory).is_empty(), "the test could not see them go");
    server.stop().unwrap();
    // At once, without waiting: `stop` has waited.
    assert!(!directory.exists());
    assert_eq!(processes_naming(&directory), Vec::<String>::new());
}

/// Its sessions are ended by the fast shutdown, and what it has written is whole: nobody waits for them, and
/// they are not killed.
#[test]
fn dropping_ends_a_server_with_busy_sessions() {
    let server = private(Options::default());
    let directory = directory_of(server.url());
    let url = server.url().to_owned();
    let session = thread::spawn(move || try_to_ask(&url, "/* busy */ select pg_sleep(600)"));
    let busy = "select count(*) from pg_stat_activity where query like '/* busy */%'";
    eventually("the session is busy", || (ask(server.url(), busy) == "1").then_some(()));
    // What is open outlasts its directory.
    let mut log = fs::File::open(directory.join("log")).unwrap();
    drop(server);
    assert!(!directory.exists());
    assert_eq!(processes_naming(&directory), Vec::<String>::new());
    let ended = session.join().unwrap().unwrap_err();
    assert_eq!(ended.code(), Some(&SqlState::ADMIN_SHUTDOWN), "{ended:?}");
    let mut said = String::new();
    log.read_to_string(&mut said).unwrap();
    assert!(said.contains("received fast shutdown request"), "{said}");
}

#[test]
fn a_server_that_hears_no_signal_is_killed() {
    let server = private(Options::default());
    let directory = directory_of(server.url());
    // A stopped process does not hear SIGINT or SIGQUIT: only SIGKILL is left.
    signal("STOP", server.pid().unwrap().into());
    server.stop().unwrap();
    assert_gone(&directory);
}

#[test]
fn the_defaults_suit_tests() {
    let server = private(Options::default());
    let show = |name: &str| ask(server.url(), &format!("show {name}"));
    for (name, value) in [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("synchronous_commit", "on"),
        ("autovacuum", "on"),
        ("shared_buffers", "64MB"),
        ("max_connections", "200"),
        ("max_prepared_transactions", "10"),
        ("TimeZone", "UTC"),
        ("log_timezone", "UTC"),
        ("server_encoding", "UTF8"),
        ("lc_messages", "C"),
        ("listen_addresses", ""),
    ] {
        assert_eq!(show(name), value, "{name}");
    }
    let locale = "select datcollate || ' ' || datctype from pg_database where datname = 'postgres'";
    assert_eq!(ask(server.url(), locale), "C C");
}

#[test]
fn a_durable_server_flushes_and_settings_override_the_defaults() {
    let settings = settings(&[("shared_buffers", "16MB"), ("my.own", "it's, \"so\"")]);
    let server = private(Options { durable: true, settings, ..Options::default() });
    let show = |name: &str| ask(server.url(), &format!("show {name}"));
    assert_eq!((show("fsync"), show("full_page_writes")), ("on".into(), "on".into()));
    assert_eq!((show("shared_buffers"), show("my.own")), ("16MB".into(), "it's, \"so\"".into()));
}

#[test]
fn a_setting_that_the_server_refuses_shows_in_the_error_and_leaves_nothing() {
    let scratch = Scratch::new();
    let (result, stderr) = output(program(&scratch).args(["--set", "shared_buffers=plenty"]));
    assert_eq!(result.status.code(), Some(1));
    assert!(stderr.contains("ended before it accepted connections"), "{stderr}");
    assert!(stderr.contains("\"shared_buffers\": \"plenty\""), "{stderr}");
    assert_eq!(scratch.names(), Vec::<String>::new());

    let settings = settings(&[("shared_buffers", "plenty")]);
    let options = Options { ignore_database_url: true, settings, ..Options::default() };
    assert!(matches!(Server::acquire(&options), Err(DevPgError::Start { .. })));
}

#[test]
fn two_servers_at_once_are_two() {
    let threads: Vec<_> = (0..2)
        .map(|number| {
            thread::spawn(move || {
                let server = private(Options::default());
                ask(server.url(), &format!("create table only_in_{number} ()"));
                (server, number)
            })
        })
        .collect();
    let servers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    for (server, number) in &servers {
        let tables = "select relname from pg_class where relname like 'only_in_%'";
        assert_eq!(ask(server.url(), tables), format!("only_in_{number}"));
    }
    // The end of one does not touch the other, although one process holds both.
    let mut servers = servers.into_iter();
    let (first, second) = (servers.next().unwrap().0, servers.next().unwrap().0);
    first.stop().unwrap();
    assert_eq!(ask(second.url(), "select 1"), "1");
}

#[test]
fn an_owner_that_is_killed_or_interrupted_leaves_nothing() {
    let signals = [("KILL", false), ("KILL", true), ("INT", true), ("TERM", false), ("HUP", true)];
    for (name, to_group) in signals.into_iter().filter(|(name, _)| !is_ignored(name)) {
        let scratch = Scratch::new();
        let mut holder = Holder::start(&mut program(&scratch));
        let directory = holder.directory();
        assert_eq!(ask(&holder.url, "select 1"), "1");
        let pid = i64::from(holder.child.id());
        signal(name, if to_group { -pid } else { pid });
        assert!(!holder.child.wait().unwrap().success());
        assert_gone(&directory);
        assert_eq!(scratch.names(), Vec::<String>::new(), "{name}");
    }
}

/// Whether this process ignores a signal, and its children therefore do: one that a shell started in the
/// background ignores SIGINT, and one that nohup started SIGHUP.
fn is_ignored(signal: &str) -> bool {
    let number = match signal {
        "HUP" => 1,
        "INT" => 2,
        "KILL" => 9,
        "TERM" => 15,
        other => panic!("{other} is not sent here"),
    };
    // Elsewhere than on Linux nobody can tell.
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(ignored.trim(), 16).unwrap() & (1 << (number - 1)) != 0
}

/// At whatever moment the owner is killed: `initdb` at its beginning, in its middle, the server
/// just started.
#[test]
fn an_owner_that_is_killed_while_it_starts_leaves_nothing() {
    for moment in ["", "data", "data/global/pg_control", ".s.PGSQL.5432"] {
        let scratch = Scratch::new();
        // It would end by itself with its standard input, before anybody had looked.
        let mut command = program(&scratch);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut owner = command.spawn().unwrap();
        let directory = eventually(&format!("{moment} is there"), || {
            let directory = scratch.0.join(scratch.names().first()?);
            directory.join(moment).exists().then_some(directory)
        });
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_gone(&directory);
        assert_eq!(scratch.names(), Vec::<String>::new(), "{moment:?}");
    }
}

#[test]
fn what_is_to_be_kept_is_kept() {
    let scratch = Scratch::new();
    let (result, stderr) = output(program(&scratch).arg("--keep"));
    assert!(result.status.success(), "{stderr}");
    let directory = directory_of(&String::from_utf8(result.stdout).unwrap());
    assert!(stderr.contains(&format!("kept {}", directory.display())), "{stderr}");
    assert!(directory.join("data/PG_VERSION").exists());
    assert!(directory.join("log").exists());
    assert!(!directory.join("data/postmaster.pid").exists(), "it was shut down");
    assert_eq!(processes_naming(&directory), Vec::<String>::new());
}

#[test]
fn what_is_left_running_runs_until_it_is_told_to_stop() {
    let server = private(Options::default());
    let (url, pid) = (server.url().to_owned(), server.pid().unwrap());
    let directory = directory_of(&url);
    server.leave_running().unwrap();
    assert_eq!(ask(&url, "select 1"), "1");
    signal("INT", pid.into());
    eventually("the server ends", || processes_naming(&directory).is_empty().then_some(()));
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn one_server_is_shared_by_a_process() {
    let server = Server::shared().unwrap();
    let others: Vec<_> = (0..3).map(|_| thread::spawn(|| Server::shared().unwrap())).collect();
    for other in others {
        assert!(std::ptr::eq(server, other.join().unwrap()));
    }
    assert_eq!(ask(server.url(), "select 1"), "1");
    println!("shared: {}", server.url());
}

/// Runs the test above in a process of its own, whose end is the shared server's end.
#[test]
fn the_shared_server_is_gone_after_the_process() {
    let scratch = Scratch::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "one_server_is_shared_by_a_process", "--nocapture"]);
    command.env("TMPDIR", &scratch.0).env_remove("DATABASE_URL");
    let (result, stderr) = output(&mut command);
    let stdout = String::from_utf8(result.stdout).unwrap();
    assert!(result.status.success(), "{stdout}{stderr}");
    let url = stdout.split_once("shared: ").unwrap().1;
    assert_gone(&directory_of(url));
    assert_eq!(scratch.names(), Vec::<String>::new());
}

#[test]
fn only_the_owner_reaches_the_socket() {
    let server = private(Options::default());
    let metadata = fs::metadata(directory_of(server.url())).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o700);
    if is_root() {
        assert_eq!((metadata.uid(), metadata.gid()), nobody());
    }
}

/// Also with a working directory, a home and a temporary directory that are closed to it.
#[test]
fn root_runs_it_as_nobody() {
    if !is_root() {
        eprintln!("skipped: only root can test it");
        return;
    }
    let scratch = Scratch::new();
    let closed = scratch.closed("closed");
    chmod(&closed, 0o700);
    let mut command = program(&scratch);
    command.env("TMPDIR", &closed).env("HOME", &closed).current_dir(&closed);
    let holder = Holder::start(&mut command);
    let directory = holder.directory();
    assert!(!directory.starts_with(&closed));
    assert_eq!(fs::metadata(directory.join("data")).unwrap().uid(), nobody().0);
    assert_eq!(ask(&holder.url, "select 1"), "1");
    holder.finish();
    assert_gone(&directory);
}

#[test]
fn an_ordinary_user_runs_it_as_itself() {
    if !is_root() {
        eprintln!("skipped: all the other tests show it");
        return;
    }
    let scratch = Scratch::new();
    let copy = copy_of_program(&scratch);
    let (uid, gid) = nobody();
    for end in ["finish", "kill"] {
        let mut command = Command::new(&copy);
        command.env("TMPDIR", &scratch.0).env_remove("DATABASE_URL").env_remove("HOME");
        let mut holder = Holder::start(command.current_dir("/").uid(uid).gid(gid));
        let directory = holder.directory();
        assert_eq!(directory.parent(), Some(scratch.0.as_path()));
        assert_eq!(ask(&holder.url, "select 1"), "1");
        if end == "kill" {
            holder.child.kill().unwrap();
            holder.child.wait().unwrap();
        } else {
            holder.finish();
        }
        assert_gone(&directory);
    }
}

#[test]
fn the_callers_environment_does_not_reach_the_server() {
    let scratch = Scratch::new();
    let mut command = program(&scratch);
    command.env("PGPORT", "6000").env("PGDATA", "/nonexistent").env("PGHOST", "/nonexistent");
    command.env("LC_ALL", "de_DE.UTF-8").env("TZ", "Asia/Tokyo").env("SECRET", "x");
    let holder = Holder::start(&mut command);
    assert_eq!(ask(&holder.url, "show port"), "5432");
    assert_eq!(ask(&holder.url, "select current_setting('log_timezone')"), "UTC");
    let pid = fs::read_to_string(holder.directory().join("data/postmaster.pid")).unwrap();
    let environment = PathBuf::from(format!("/proc/{}/environ", pid.lines().next().unwrap()));
    if environment.exists() {
        let variables = String::from_utf8_lossy(&fs::read(environment).unwrap()).into_owned();
        assert!(variables.contains("TZ=UTC"), "{variables}");
        assert!(!variables.contains("SECRET"), "{variables}");
    }
    holder.finish();
}

#[test]
fn a_temporary_directory_with_odd_characters_is_quoted() {
    let scratch = Scratch::new();
    let odd = scratch.closed(r#"it's "o\dd" "#);
    chmod(&odd, 0o1777);
    let holder = Holder::start(program(&scratch).env("TMPDIR", &odd));
    assert!(holder.url.starts_with("host='"), "{}", holder.url);
    assert_eq!(ask(&holder.url, "select 1"), "1");
    assert_eq!(common::names_in(&odd).len(), 1, "it is there and not elsewhere");
    holder.finish();
    assert_eq!(common::names_in(&odd), Vec::<String>::new());
}

#[test]
fn a_temporary_directory_that_will_not_do_is_passed_over() {
    let scratch = Scratch::new();
    let long = scratch.closed(&"x".repeat(100));
    chmod(&long, 0o1777);
    let comma = scratch.closed("a,b");
    chmod(&comma, 0o1777);
    for unusable in [long.as_path(), &comma, &scratch.0.join("absent"), Path::new("relative")] {
        let holder = Holder::start(program(&scratch).env("TMPDIR", unusable));
        let directory = holder.directory();
        assert!(!directory.starts_with(&scratch.0), "{}", directory.display());
        assert_eq!(ask(&holder.url, "select 1"), "1");
        assert!(bin_of(&directory).is_absolute());
        holder.finish();
        assert_gone(&directory);
    }
}
