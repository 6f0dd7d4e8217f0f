//! The daemon as a process: killed, stopped, and made to read its configuration again; and when its directory is moved.

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ingestd::client::{Client, ClientError};
use ingestd::config::ByteSize;
use ingestd::daemon::{DaemonStatus, orphaned_staging};
use ingestd::rfc3339;
use loom_engine::SourceId;
use loom_engine::query::Directory;

use super::support::{NUMBERS, SMALL, There, eventually, ingestd, numbers, payloads};

fn write_config(dir: &Path, text: &str) -> String {
    let path = dir.join("loom.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Pushes numbers, with a sync now and then, until the daemon is gone; `acknowledged` is how far syncs returned.
fn push_until_gone(
    client: &Client,
    source: SourceId,
    acknowledged: &AtomicU64,
) -> (u64, ClientError) {
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
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let config = write_config(root.path(), &format!("{SMALL}{NUMBERS}"));
    let there = There::start(&dir, &["--config", &config]);
    let acknowledged = AtomicU64::new(0);
    let client = there.client();
    let source = client.define_one(NUMBERS).unwrap();
    let (pushed, error) = std::thread::scope(|scope| {
        let pusher = scope.spawn(|| push_until_gone(&client, source, &acknowledged));
        eventually(|| (acknowledged.load(Ordering::Acquire) >= 100_000).then_some(()));
        there.signal("-TERM");
        pusher.join().unwrap()
    });
    assert!(there.wait(), "a stop is no failure");
    let ClientError::Stopped(synced) = error else {
        panic!("a stop in good order says so: {error}");
    };
    let stored = numbers(&dir);
    assert_eq!(stored.len() as u64, synced.counts.stored);
    assert!(synced.counts.stored >= acknowledged.load(Ordering::Acquire));
    assert!(synced.counts.stored <= pushed);
    assert!(stored.iter().copied().eq(0..stored.len() as u64));
    assert!(!dir.join("ingest.sock").exists());
    assert!(
        !dir.join("staging").exists(),
        "a clean stop leaves no staging"
    );
}

#[test]
fn a_second_signal_right_after_the_first_is_the_same_request() {
    use rustix::process::{Pid, Signal, kill_process};
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    for (first, second) in [
        (Signal::TERM, Signal::INT),
        (Signal::INT, Signal::TERM),
        (Signal::TERM, Signal::TERM),
    ] {
        let there = There::start(&dir, &[]);
        let pid = Pid::from_child(&there.child);
        kill_process(pid, first).unwrap();
        std::thread::sleep(std::time::Duration::from_micros(500));
        // It may be gone already.
        let _ = kill_process(pid, second);
        assert!(there.wait(), "{first:?}, {second:?}");
        assert!(!dir.join("staging").exists());
    }
}

// case Network and input: a configuration that the next start would refuse
#[test]
fn a_hangup_reads_the_configuration_again_and_a_faulty_one_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let config = write_config(root.path(), &format!("{SMALL}{NUMBERS}"));
    let there = There::start(&dir, &["--config", &config]);
    let client = there.client();
    let source = client.define_one(NUMBERS).unwrap();
    client.push(source, &1u64.to_le_bytes()).unwrap();

    write_config(
        root.path(),
        &format!("{SMALL}{NUMBERS}[[source]]\nname = 'fresh'\n"),
    );
    there.signal("-HUP");
    eventually(|| {
        client
            .catalog()
            .unwrap()
            .contains("\"fresh\"")
            .then_some(())
    });

    write_config(root.path(), "[log]\nchnk = '4KiB'\n");
    there.signal("-HUP");
    client.push(source, &2u64.to_le_bytes()).unwrap();
    client.sync().unwrap();

    write_config(
        root.path(),
        &format!("{SMALL}{NUMBERS}[[source]]\nname = 'fresher'\n"),
    );
    there.signal("-HUP");
    eventually(|| {
        client
            .catalog()
            .unwrap()
            .contains("\"fresher\"")
            .then_some(())
    });
    assert_eq!(numbers(&dir), [1, 2]);
    there.signal("-INT");
    assert!(there.wait());
    assert!(payloads(&dir, "fresh").is_empty());
}

// case Disk: the directory moved, removed or replaced
#[test]
fn a_daemon_whose_directory_is_moved_away_says_so_once_and_confirms_nothing_until_it_is_restarted()
{
    for what in ["removed or moved away", "replaced by another directory"] {
        let root = tempfile::tempdir().unwrap();
        let (dir, away) = (root.path().join("loom"), root.path().join("away"));
        let log = root.path().join("log");
        let child = ingestd()
            .arg("run")
            .arg(&dir)
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let there = There::of(child, &dir);
        let client = there.client();
        let source = client.define_one(NUMBERS).unwrap();
        client.push(source, &1u64.to_le_bytes()).unwrap();
        client.sync().unwrap();
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
        there.signal("-TERM");
        // A flusher that found no place for a file makes the stop fail.
        there.wait();
        let log = std::fs::read_to_string(&log).unwrap();
        assert_eq!(log.matches(&named).count(), 1, "{log}");
        let again = There::start(&dir, &[]);
        assert_eq!(numbers(&dir)[0], 1, "{log}");
        let client = again.client();
        client.push(source, &3u64.to_le_bytes()).unwrap();
        client.sync().unwrap();
        again.signal("-TERM");
        assert!(again.wait());
        assert_eq!(numbers(&dir).last(), Some(&3));
    }
}

/// What `ingestd status` says.
fn status(args: &[&str]) -> String {
    let output = ingestd().arg("status").args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

// case Crash: stale staging
#[test]
fn staging_files_are_listed_with_their_directories_and_orphans_are_named() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let staging = root.path().join("staging");
    std::fs::create_dir(&staging).unwrap();
    let folder = format!("--staging={}", staging.display());
    let list = || status(&[&folder]);
    let log = SMALL.replace(
        "[log]",
        &format!("[log]\nstaging = '{}'", staging.display()),
    );
    let config = write_config(root.path(), &format!("{log}{NUMBERS}"));
    assert_eq!(
        list(),
        format!("no staging files in {}\n", staging.display())
    );
    let there = There::start(&dir, &["--config", &config]);
    let own = there.client().welcome().uuid;
    std::fs::write(staging.join("loom-of-somebody-else"), "x").unwrap();
    let shown = dir.display().to_string();
    let listed = list();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let [_, line] = listed.lines().collect::<Vec<_>>()[..] else {
        unreachable!()
    };
    assert!(line.ends_with(&format!("  runs    {shown}")), "{listed}");
    assert_eq!(orphaned_staging(&staging, None), [""; 0]);
    there.signal("-KILL");
    assert!(!there.wait());
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
    assert!(
        listed.contains(&format!("  none: orphan  {shown}\n")),
        "{listed}"
    );
    assert!(
        listed.ends_with(&format!("'ingestd run {shown}'\n")),
        "{listed}"
    );
    // One that was moved is found by its number.
    let moved = root.path().join("moved");
    std::fs::rename(&dir, &moved).unwrap();
    let line = orphan(None);
    assert!(
        line.contains(&format!("of {shown}, which is not there")),
        "{line}"
    );
    let (_, find) = line.split_once("'find / ").unwrap();
    let (find, _) = find.split_once('\'').unwrap();
    let found = std::process::Command::new("find")
        .arg(root.path())
        .args(find.split(' '))
        .output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    assert_eq!(Path::new(found.trim_end()), moved, "{line}");
    // The file of an older build says nothing of its directory or its writer.
    let name = std::fs::read_dir(&staging).unwrap();
    let name = name.map(|entry| entry.unwrap().path());
    let name = name.max_by_key(|path| path.as_os_str().len()).unwrap();
    let sound = std::fs::read(&name).unwrap();
    let older = std::fs::File::options().write(true).open(&name).unwrap();
    older.write_all_at(&[0; 960], 64).unwrap();
    assert_eq!(orphaned_staging(&staging, None), [""; 0]);
    assert!(list().contains("an older build may have made it"));
    older.write_all_at(&sound[64..1024], 64).unwrap();
    std::fs::rename(&moved, &dir).unwrap();
    let again = There::start(&dir, &["--config", &config]);
    again.signal("-TERM");
    assert!(again.wait());
    assert!(list().starts_with("no staging files in "));
}

#[test]
fn status_without_a_daemon_shows_the_disk_its_limit_and_the_oldest_record() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let config = write_config(root.path(), &format!("{SMALL}{NUMBERS}"));
    let limited = root.path().join("limited.toml");
    let retention = "[retention]\nmax_bytes = '3GiB'\n";
    std::fs::write(&limited, format!("{SMALL}{retention}{NUMBERS}")).unwrap();
    let daemon = There::start(&dir, &["--config", &config]);
    let client = daemon.client();
    let source = client.define_one(NUMBERS).unwrap();
    for number in 0..1000u64 {
        client.push(source, &number.to_le_bytes()).unwrap();
    }
    client.sync_durable().unwrap();
    daemon.signal("-TERM");
    assert!(daemon.wait());
    let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
    let oldest = rfc3339(snapshot.oldest_ts().unwrap().unwrap());
    let files = ["records", "chunks", "times"].map(|log| std::fs::read_dir(dir.join(log)).unwrap());
    let bytes = files.into_iter().flatten();
    let bytes: u64 = bytes
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    let held = ByteSize(bytes).approximately();
    let dir = dir.to_str().unwrap();
    for (args, limit) in [
        (&[dir][..], "; --config shows the limit"),
        (&[dir, "--config", &config], " without a limit (max_bytes)"),
        (
            &[dir, "--config", limited.to_str().unwrap()],
            " of at most 3.0 GiB",
        ),
    ] {
        let shown = status(args);
        let line = format!("on disk      {held}{limit}; the oldest record arrived at {oldest}\n");
        assert!(shown.contains(&line), "{line}{shown}");
    }
}

#[test]
fn a_service_manager_learns_of_start_reload_life_and_stop() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let config = write_config(root.path(), &format!("{SMALL}{NUMBERS}"));
    let address = root.path().join("notify.sock");
    let manager = UnixDatagram::bind(&address).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut bytes = [0; 4096];
    let mut next = || {
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    };
    let child = ingestd()
        .args(["run", dir.to_str().unwrap(), "--config", &config])
        .env("NOTIFY_SOCKET", &address)
        .env("WATCHDOG_USEC", "1000000")
        .spawn()
        .unwrap();
    let ready = format!("READY=1\nSTATUS=recording into {}", dir.display());
    assert_eq!(next(), ready);
    Client::connect(&dir).unwrap();
    let there = There::of(child, &dir);
    assert_eq!([next(), next()], ["WATCHDOG=1", "WATCHDOG=1"]);
    there.signal("-HUP");
    let mut after = || {
        loop {
            let message = next();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    };
    assert_eq!([after(), after()], ["RELOADING=1".to_owned(), ready]);
    there.signal("-TERM");
    assert_eq!(after(), "STOPPING=1");
    assert!(there.wait());
}
