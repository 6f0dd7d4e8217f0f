//! The daemon as a process: killed, stopped, and made to read its configuration again; and when its directory is moved.

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ingestd::client::ClientError;
use ingestd::config::ByteSize;
use ingestd::daemon::{DaemonStatus, orphaned_staging};
use ingestd::rfc3339;
use loom_engine::query::Directory;
use loom_engine::testkit::paths;
use loom_tests::command::{Ended, eventually, file, ingestd, run, says, until, word};
use loom_tests::daemon::configuration;
use rustix::process::Signal;

use super::support::{NUMBERS, Place, SMALL, There, connect, kill, numbers, payloads, push, stop};

fn small(more: &str) -> String {
    format!("{SMALL}{NUMBERS}{more}")
}

/// Pushes numbers, with a sync now and then, until the daemon is gone; `acknowledged` is how far syncs returned.
fn push_until_gone(dir: &Path, acknowledged: &AtomicU64) -> (u64, ClientError) {
    let (client, source) = connect(dir);
    for n in 0u64.. {
        if let Err(error) = client.push(source, &n.to_le_bytes()) {
            return (n, error);
        }
        if n % 10_000 == 9_999 {
            match client.sync() {
                Ok(_) => acknowledged.store(n + 1, Ordering::Release),
                Err(error) => return (n + 1, error),
            }
        }
    }
    unreachable!("numbers do not end");
}

// G4
#[test]
fn a_stop_under_load_loses_nothing_that_the_socket_took() {
    let place = Place::new();
    let there = place.start(&small(""));
    let dir = &place.dir;
    let acknowledged = AtomicU64::new(0);
    let (pushed, error) = std::thread::scope(|scope| {
        let pusher = scope.spawn(|| push_until_gone(dir, &acknowledged));
        until(|| acknowledged.load(Ordering::Acquire) >= 100_000);
        stop(there);
        pusher.join().unwrap()
    });
    let ClientError::Stopped(synced) = error else {
        panic!("a stop in good order says so: {error}");
    };
    let stored = numbers(dir);
    assert_eq!(stored.len() as u64, synced.counts.stored);
    assert!(synced.counts.stored >= acknowledged.load(Ordering::Acquire));
    assert!(synced.counts.stored <= pushed);
    assert!(stored.iter().copied().eq(0..stored.len() as u64));
    assert!(!dir.join("ingest.sock").exists());
    let staging = dir.join("staging");
    assert!(!staging.exists(), "a clean stop leaves no staging");
}

#[test]
fn a_second_signal_right_after_the_first_is_the_same_request() {
    let place = Place::new();
    for (first, second) in [
        (Signal::TERM, Signal::INT),
        (Signal::INT, Signal::TERM),
        (Signal::TERM, Signal::TERM),
    ] {
        let there = place.start("");
        there.signal(first).unwrap();
        std::thread::sleep(Duration::from_micros(500));
        // It may be gone already.
        let _ = there.signal(second);
        let ended = there.wait().unwrap();
        assert!(ended.success(), "{first:?}, {second:?}");
        assert!(!place.dir.join("staging").exists());
    }
}

// case Network and input: a configuration that the next start would refuse
#[test]
fn a_hangup_reads_the_configuration_again_and_a_faulty_one_changes_nothing() {
    let place = Place::new();
    let there = place.start(&small(""));
    let (client, source) = connect(&place.dir);
    client.push(source, &1u64.to_le_bytes()).unwrap();
    let reload = |config: &str| {
        configuration(&place.dir, config).unwrap();
        there.signal(Signal::HUP).unwrap();
    };
    let has = |name: &str| client.catalog().unwrap().contains(name);
    reload(&small("[[source]]\nname = 'fresh'\n"));
    until(|| has("\"fresh\""));
    reload("[log]\nchnk = '4KiB'\n");
    push(&client, source, [2]);
    reload(&small("[[source]]\nname = 'fresher'\n"));
    until(|| has("\"fresher\""));
    assert_eq!(numbers(&place.dir), [1, 2]);
    assert!(there.end(Signal::INT).unwrap().success());
    assert!(payloads(&place.dir, "fresh").is_empty());
}

// case Disk: the directory moved, removed or replaced
#[test]
fn a_daemon_whose_directory_is_moved_away_says_so_once_and_confirms_nothing_until_it_is_restarted()
{
    for what in ["removed or moved away", "replaced by another directory"] {
        let place = Place::new();
        let (dir, away) = (place.dir.clone(), place.root.path().join("away"));
        let there = place.start("");
        let (client, source) = connect(&dir);
        push(&client, source, [1]);
        std::fs::rename(&dir, &away).unwrap();
        if what.starts_with("replaced") {
            std::fs::create_dir(&dir).unwrap();
        }
        // The flusher may fail first, and says so until the directory is missed.
        let named = format!("the Loom directory {} was", dir.display());
        let message = eventually(|| {
            let status = client.status().unwrap();
            let trouble = DaemonStatus::from_json(&status).unwrap().trouble;
            trouble.filter(|trouble| trouble.starts_with(&named))
        });
        assert!(message.contains("restart this daemon"), "{message}");
        for back in [false, true] {
            if back {
                if dir.exists() {
                    std::fs::remove_dir(&dir).unwrap();
                }
                std::fs::rename(&away, &dir).unwrap();
            }
            client.push(source, &2u64.to_le_bytes()).unwrap();
            assert_eq!(client.sync().unwrap_err().to_string(), message);
        }
        // A flusher that found no place for a file makes the stop fail.
        there.end(Signal::TERM).unwrap();
        let log = std::fs::read_to_string(dir.with_extension("log")).unwrap();
        assert_eq!(log.matches(&named).count(), 1, "{log}");
        let again = place.start("");
        assert_eq!(numbers(&dir)[0], 1, "{log}");
        let (client, source) = connect(&dir);
        push(&client, source, [3]);
        stop(again);
        assert_eq!(numbers(&dir).last(), Some(&3));
    }
}

/// The output of `ingestd status`.
fn status(args: &[&str]) -> String {
    run(&[&["status"], args].concat()).ends(0).out
}

// case Crash: stale staging
#[test]
fn staging_files_are_listed_with_their_directories_and_orphans_are_named() {
    let place = Place::new();
    let (root, dir) = (place.root.path(), &place.dir);
    let staging = root.join("staging");
    std::fs::create_dir(&staging).unwrap();
    let folder = format!("--staging={}", staging.display());
    let list = || status(&[&folder]);
    let log = format!("[log]\nstaging = '{}'", staging.display());
    let start = || place.start(&small("").replace("[log]", &log));
    let nothing = format!("no staging files in {}\n", staging.display());
    assert_eq!(list(), nothing);
    let there = start();
    let own = there.client().unwrap().welcome().uuid;
    std::fs::write(staging.join("loom-of-somebody-else"), "x").unwrap();
    let shown = dir.display().to_string();
    let listed = list();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let runs = format!("  runs    {shown}\n");
    assert!(listed.ends_with(&runs), "{listed}");
    assert_eq!(orphaned_staging(&staging, None), [""; 0]);
    kill(there);
    let orphan = |uuid| {
        let lines = orphaned_staging(&staging, uuid);
        let [line] = <[String; 1]>::try_from(lines).unwrap();
        line
    };
    assert_eq!(orphaned_staging(&staging, Some(own)), [""; 0]);
    for other in [None, Some([7; 16])] {
        let line = orphan(other);
        let remedy = format!("the next start takes its records in: 'ingestd run {shown}'");
        assert!(line.ends_with(&remedy), "{line}");
    }
    let listed = list();
    says(&listed, &format!("  none: orphan  {shown}\n"));
    let remedy = format!("'ingestd run {shown}'\n");
    assert!(listed.ends_with(&remedy), "{listed}");
    // One that was moved is found by its number.
    let moved = root.join("moved");
    std::fs::rename(dir, &moved).unwrap();
    let line = orphan(None);
    says(&line, &format!("of {shown}, which is not there"));
    let (_, find) = line.split_once("'find / ").unwrap();
    let (find, _) = find.split_once('\'').unwrap();
    let mut search = std::process::Command::new("find");
    let found = Ended::of(search.arg(root).args(find.split(' '))).out;
    assert_eq!(Path::new(found.trim_end()), moved, "{line}");
    // The file of an older build says nothing of its directory or its writer.
    let files = paths(&staging).into_iter();
    let name = files.max_by_key(|path| path.as_os_str().len()).unwrap();
    let sound = std::fs::read(&name).unwrap();
    let older = std::fs::File::options().write(true).open(&name).unwrap();
    older.write_all_at(&[0; 960], 64).unwrap();
    assert_eq!(orphaned_staging(&staging, None), [""; 0]);
    assert!(list().contains("an older build may have made it"));
    older.write_all_at(&sound[64..1024], 64).unwrap();
    std::fs::rename(&moved, dir).unwrap();
    stop(start());
    assert!(list().starts_with("no staging files in "));
}

#[test]
fn status_without_a_daemon_shows_the_disk_its_limit_and_the_oldest_record() {
    let place = Place::new();
    let dir = &place.dir;
    let retention = "[retention]\nmax_bytes = '3GiB'\n";
    let limited = format!("{SMALL}{retention}{NUMBERS}");
    let limited = file(place.root.path(), "limited.toml", limited);
    let daemon = place.start(&small(""));
    let config = word(&dir.with_extension("toml")).to_owned();
    let (client, source) = connect(dir);
    push(&client, source, 0..1000);
    client.sync_durable().unwrap();
    stop(daemon);
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let oldest = rfc3339(snapshot.oldest_ts().unwrap().unwrap());
    let files = ["records", "chunks", "times"].map(|log| paths(&dir.join(log)));
    let files = files.iter().flatten();
    let bytes = files.map(|file| file.metadata().unwrap().len()).sum();
    let held = ByteSize(bytes).approximately();
    let dir = word(dir);
    for (args, limit) in [
        (&[dir][..], "; --config shows the limit"),
        (&[dir, "--config", &config], " without a limit (max_bytes)"),
        (&[dir, "--config", &limited], " of at most 3.0 GiB"),
    ] {
        let shown = status(args);
        let line = format!("on disk      {held}{limit}; the oldest record arrived at {oldest}\n");
        says(&shown, &line);
    }
}

#[test]
fn a_service_manager_learns_of_start_reload_life_and_stop() {
    let place = Place::new();
    let dir = &place.dir;
    let config = configuration(dir, &small("")).unwrap();
    let address = place.root.path().join("notify.sock");
    let manager = UnixDatagram::bind(&address).unwrap();
    let patience = Duration::from_secs(60);
    manager.set_read_timeout(Some(patience)).unwrap();
    let mut bytes = [0; 4096];
    let mut next = || {
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    let mut run = ingestd(["run", word(dir), "--config", word(&config)]);
    run.env("NOTIFY_SOCKET", &address)
        .env("WATCHDOG_USEC", "1000000");
    let there = There::spawn(run, dir).unwrap();
    let ready = format!("READY=1\nSTATUS=recording into {}", dir.display());
    assert_eq!(next(), ready);
    assert_eq!([next(), next()], ["WATCHDOG=1", "WATCHDOG=1"]);
    there.signal(Signal::HUP).unwrap();
    let mut after = || {
        loop {
            let message = next();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    };
    assert_eq!([after(), after()], ["RELOADING=1".to_owned(), ready]);
    there.signal(Signal::TERM).unwrap();
    assert_eq!(after(), "STOPPING=1");
    assert!(there.wait().unwrap().success());
}
