//! Retention by bytes, a disk that fills, and sources as they change.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::check::check;
use loom_engine::query::Directory;
use loom_engine::testkit::paths;
use loom_tests::command::{Ended, eventually, file, ingestd, run, says, until, word};
use loom_tests::daemon::configuration;
use loom_tests::disk::MemoryDisk;
use loom_tests::machine;
use rustix::process::Signal;

use super::support::{
    Here, NOISE, NUMBERS, Place, SMALL, connect, connect_as, daemon, losses, lost, numbers,
    payloads, push, push_noise, stop,
};

fn disk_bytes(dir: &Path) -> u64 {
    let logs = ["records", "chunks", "times"].map(|log| paths(&dir.join(log)));
    let bytes = |path: &PathBuf| path.metadata().map_or(0, |found| found.len());
    logs.iter().flatten().map(bytes).sum()
}

/// The newest numbers without a hole.
fn assert_suffix(dir: &Path, end: u64) -> u64 {
    let left = numbers(dir);
    let oldest = left[0];
    assert!(left.into_iter().eq(oldest..end));
    oldest
}

// G13
#[test]
fn the_oldest_segments_go_when_the_directory_is_too_large_also_by_a_changed_configuration() {
    let here = Here::start(&format!("{SMALL}{NOISE}"));
    let (client, source) = connect_as(here.path(), NOISE);
    push_noise(&client, source, 0..1_000_000);
    let before = disk_bytes(here.path());
    assert_eq!(assert_suffix(here.path(), 1_000_000), 0);
    let limit = before - (4 << 20);
    let config = format!("{SMALL}[retention]\nmax_bytes = '{limit}B'\n{NOISE}");
    here.reload(&config).unwrap();
    until(|| disk_bytes(here.path()) <= limit);
    assert!(assert_suffix(here.path(), 1_000_000) > 0);
    let mut most = 0;
    for round in 10..30 {
        push_noise(&client, source, round * 100_000..(round + 1) * 100_000);
        most = most.max(disk_bytes(here.path()));
        // Files go a moment after they are given up.
        until(|| disk_bytes(here.path()) <= limit);
    }
    assert!(most <= limit + (8 << 20), "{most} of {limit}");
    assert!(here.daemon().status().unwrap().evicted_segments > 10);
    let dir = here.stop();
    let oldest = assert_suffix(dir.path(), 3_000_000);
    assert!(oldest > 1_000_000, "{oldest}");
    let report = check(dir.path()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

/// The configuration of a directory of at most 8 MiB whose records must be archived first.
fn archived(to: &Path) -> String {
    let to = to.display();
    let limit = "[retention]\nmax_bytes = '8MiB'\n";
    format!("{SMALL}{limit}[archive]\nto = '{to}'\nrequired = true\n{NOISE}")
}

fn evicted(here: &Here) -> u64 {
    here.daemon().status().unwrap().evicted_segments
}

fn archive(dir: &Path, to: &Path) -> Ended {
    run(&["archive", word(dir), "--to", word(to)])
}

// case Archive: retention is faster
#[test]
fn what_must_be_archived_goes_only_when_it_is() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("archive");
    let here = Here::start(&archived(&to));
    let (client, source) = connect_as(here.path(), NOISE);
    push_noise(&client, source, 0..1_000_000);
    // Two commands later the daemon has looked at the directory, which is larger than it may be.
    client.sync().unwrap();
    assert_eq!(assert_suffix(here.path(), 1_000_000), 0);
    assert_eq!(evicted(&here), 0);
    archive(here.path(), &to).ends(0);
    until(|| evicted(&here) > 0);
    push_noise(&client, source, 1_000_000..2_000_000);
    client.sync().unwrap();
    let oldest = assert_suffix(here.path(), 2_000_000);
    assert!(oldest <= 1_000_000, "{oldest}");
    let second = archive(here.path(), &to).ends(0);
    assert!(!second.err.contains("retention removed"), "{second:?}");
}

// case Archive: retention is faster
#[test]
fn an_archive_that_does_not_answer_keeps_nobody_waiting() {
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("archive");
    std::fs::create_dir(&to).unwrap();
    // Opening it waits until somebody writes, as for a server that is gone.
    let position = to.join("_position.json");
    Ended::of(Command::new("mkfifo").arg(&position)).ends(0);
    let here = Here::start(&archived(&to));
    let (client, source) = connect_as(here.path(), NOISE);
    assert_eq!(push_noise(&client, source, 0..1_000_000).stored, 1_000_000);
    client.sync().unwrap();
    assert_eq!(evicted(&here), 0);
    // It answers again: whoever waits, or opens it until it is gone, finds a writer.
    let mut answering = std::fs::OpenOptions::new();
    let answering = answering.read(true).write(true).open(&position).unwrap();
    std::fs::remove_file(&position).unwrap();
    drop(answering);
    archive(here.path(), &to).ends(0);
    until(|| evicted(&here) > 0);
}

#[test]
fn a_disk_that_is_too_full_evicts_all_but_what_is_being_written() {
    let full = "[retention]\nmin_free = '1000000TiB'\n";
    let here = Here::start(&format!("{SMALL}{full}{NOISE}"));
    let (client, source) = connect_as(here.path(), NOISE);
    assert_eq!(push_noise(&client, source, 0..1_000_000).stored, 1_000_000);
    // Of 16 segments of the records all but the last, one after the other.
    until(|| evicted(&here) >= 14);
    assert!(assert_suffix(here.stop().path(), 1_000_000) > 0);
}

/// The configuration of a directory of small files on a small disk.
fn on_disk(more: &str) -> String {
    let log = "chunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n";
    format!("[log]\n{log}[retention]\nmin_free = '0%'\n{more}{NOISE}")
}

fn mount(size: &str) -> Option<MemoryDisk> {
    MemoryDisk::mount("keeping", size).unwrap()
}

/// Leaves 1 MiB of a disk.
fn fill(disk: &MemoryDisk) {
    let free = machine::free_bytes(disk.at()).unwrap();
    let ballast = vec![1; (free - (1 << 20)) as usize];
    std::fs::write(disk.at().join("ballast"), ballast).unwrap();
}

// case Disk: full in mid-flush
#[test]
fn a_file_system_that_fills_evicts_or_refuses_and_goes_on() {
    for on_full in ["evict", "refuse"] {
        let Some(disk) = mount("36m") else { return };
        let dir = disk.at().join("loom");
        let running = daemon(&dir, &on_disk(&format!("on_full = '{on_full}'\n")));
        let (client, source) = connect_as(&dir, NOISE);
        // 64 MB of log on a disk that has room for half of it.
        let counts = push_noise(&client, source, 0..4_000_000);
        assert_eq!(counts.received, 4_000_000);
        let all = counts.stored + counts.refused + counts.dropped;
        assert_eq!(counts.received, all);
        let status = running.status().unwrap();
        if on_full == "evict" {
            assert_eq!(counts.stored, 4_000_000);
            assert!(status.evicted_segments > 0);
            assert!(assert_suffix(&dir, 4_000_000) > 0);
        } else {
            assert!(counts.refused > 0 && counts.stored > 0, "{counts:?}");
            assert_eq!(numbers(&dir).len() as u64, counts.stored);
        }
        running.stop().unwrap();
        let report = check(&dir).unwrap();
        assert!(report.is_sound(), "{report:?}");
        // A log that was full to the last byte could not take what was to be said of it: the next daemon says it, once there is room.
        disk.grow("400m").unwrap();
        daemon(&dir, NOISE).stop().unwrap();
        assert_eq!(lost(&losses(&dir)), counts.refused + counts.dropped);
    }
}

#[test]
fn a_start_on_a_full_file_system_evicts_where_that_is_the_policy() {
    let Some(disk) = mount("80m") else { return };
    let dir = disk.at().join("loom");
    let start = |on_full: &str| {
        let config = Config::parse(&on_disk(&format!("on_full = '{on_full}'\n")));
        Daemon::start(&dir, &config.unwrap(), false)
    };
    let daemon = start("evict").unwrap();
    let (client, source) = connect_as(&dir, NOISE);
    push_noise(&client, source, 0..2_000_000);
    daemon.stop().unwrap();
    assert_eq!(assert_suffix(&dir, 2_000_000), 0);
    // A stop cut the segments to what they hold. They take several MiB when they are allocated again.
    fill(&disk);
    let error = start("refuse").err().unwrap().to_string();
    says(&error, "No space left");
    says(&error, "free some space, or set [retention] on_full");
    assert_eq!(assert_suffix(&dir, 2_000_000), 0);
    start("evict").unwrap().stop().unwrap();
    assert!(assert_suffix(&dir, 2_000_000) > 0);
    let daemon = start("evict").unwrap();
    let (client, source) = connect_as(&dir, NOISE);
    let counts = push_noise(&client, source, 2_000_000..2_100_000);
    assert_eq!(counts.stored, 100_000);
    daemon.stop().unwrap();
    assert!(assert_suffix(&dir, 2_100_000) > 0);
    let report = check(&dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

// case Archive: retention is faster
#[test]
fn a_start_on_a_full_file_system_evicts_nothing_that_must_be_archived_and_is_not() {
    let Some(disk) = mount("80m") else { return };
    let elsewhere = tempfile::tempdir().unwrap();
    let to = elsewhere.path().join("archive");
    let dir = disk.at().join("loom");
    let required = format!("[archive]\nto = '{}'\nrequired = true\n", to.display());
    let config = Config::parse(&on_disk(&required)).unwrap();
    let start = || Daemon::start(&dir, &config, false);
    let daemon = start().unwrap();
    let (client, source) = connect_as(&dir, NOISE);
    push_noise(&client, source, 0..2_000_000);
    daemon.stop().unwrap();
    fill(&disk);
    for _ in 0..2 {
        let error = start().err().unwrap().to_string();
        says(&error, "not archived yet");
        says(&error, "run 'ingestd archive'");
        assert_eq!(assert_suffix(&dir, 2_000_000), 0);
    }
    archive(&dir, &to).ends(0);
    start().unwrap().stop().unwrap();
    assert!(assert_suffix(&dir, 2_000_000) > 0);
}

// case Disk: full at the start
// case Disk: EFBIG
#[test]
fn a_directory_that_has_no_room_is_refused_at_the_start_and_says_why() {
    let place = tempfile::tempdir().unwrap();
    let config = file(place.path(), "loom.toml", SMALL);
    let run = ingestd(["run", word(&place.path().join("loom")), "--config", &config]);
    // No file may be larger than 100 KiB.
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -f 100; exec \"$0\" \"$@\""]);
    shell.arg(run.get_program()).args(run.get_args());
    let refused = Ended::of(&mut shell).ends(1).says("File too large");
    refused.says("free some space");
}

#[test]
fn metrics_and_health_are_served_to_this_machine() {
    let here = Here::start(&format!("[metrics]\nlisten = '127.0.0.1:0'\n{NUMBERS}"));
    let address = here.daemon().metrics_address().unwrap();
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let get = |path: &str| ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    let (client, source) = connect(here.path());
    push(&client, source, 0..5000);
    let metrics = get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    says(
        &metrics,
        "loom_stored_records_total{source=\"numbers\"} 5000\n",
    );
    assert!(get("/livez").ends_with("alive\n"));
    assert!(get("/readyz?verbose").ends_with("ready\n"));
    assert!(get("/").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    // Over HTTP/2 a client could keep its place for ever.
    let preface = ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert!(preface.is_empty() || preface.starts_with("HTTP/1.1 4"));
    // Connections that say nothing, a request that never ends, and one that is not text, keep nobody from being answered.
    drop(TcpStream::connect(address).unwrap());
    let connect = || TcpStream::connect(address).unwrap();
    connect().write_all(&[0xFF; 20_000]).unwrap();
    let idle: Vec<_> = (0..8).map(|_| connect()).collect();
    assert!(get("/livez").starts_with("HTTP/1.1 200"));
    // They do not stay open for ever.
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let refusing = format!("[retention]\nmin_free = '1000000TiB'\non_full = 'refuse'\n{NUMBERS}");
    here.reload(&refusing).unwrap();
    until(|| get("/readyz").starts_with("HTTP/1.1 503"));
    assert!(get("/livez").starts_with("HTTP/1.1 200"));
}

#[test]
fn what_was_closed_stays_closed_when_the_configuration_still_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let other = NUMBERS.replacen("'numbers'", "'other'", 1);
    let config = format!("{NUMBERS}{other}");
    let here = Here::again(dir, &config);
    let client = here.client();
    client.close_source("other").unwrap();
    client.close_index("numbers", "n").unwrap();
    let notes = here.reload(&config).unwrap();
    assert_eq!(notes.len(), 2, "{notes:?}");
    let here = Here::again(here.stop(), &config);
    let catalog = here.client().catalog().unwrap();
    let catalog: serde_json::Value = serde_json::from_str(&catalog).unwrap();
    assert_eq!(catalog[1]["closed"], true);
    assert_eq!(catalog[0]["closed"], false);
    assert_eq!(catalog[0]["indexes"].as_array().unwrap().len(), 1);
    assert_eq!(catalog[0]["indexes"][0]["closed"], true);
}

// case Network and input: a configuration that the next start would refuse
#[test]
fn a_reload_refuses_whole_what_the_next_start_would_refuse() {
    let here = Here::start(&format!("{SMALL}{NUMBERS}"));
    let client = here.client();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let fresh = "[[source]]\nname = 'fresh'\n";
    let refusing = "[retention]\nmin_free = '1000000TiB'\non_full = 'refuse'\n";
    let retyped = NUMBERS.replace("'u64'", "'i64'");
    let unreadable = "listen = ['127.0.0.1:0']\nbearer_file = '/no/such'";
    for (table, numbers, why) in [
        (String::new(), &*retyped, "field 'n'"),
        (
            format!("[metrics]\nlisten = '{address}'\n"),
            NUMBERS,
            "cannot serve metrics",
        ),
        (
            format!("[otlp]\nlisten = ['{address}']\n"),
            NUMBERS,
            "cannot receive OTLP",
        ),
        (
            format!("[otlp]\n{unreadable}\n"),
            NUMBERS,
            "cannot read [otlp] bearer_file",
        ),
    ] {
        let config = format!("{SMALL}{refusing}{table}{fresh}{numbers}");
        let config = Config::parse(&config).unwrap();
        let error = here.daemon().reload(&config).unwrap_err().to_string();
        says(&error, why);
        assert!(here.daemon().is_alive());
        assert!(!client.catalog().unwrap().contains("fresh"));
        // Nor is its retention in effect.
        let source = client.define_one(NUMBERS).unwrap();
        assert_eq!(push(&client, source, 0..1000).refused, 0);
        let dir = tempfile::tempdir().unwrap();
        daemon(dir.path(), NUMBERS).stop().unwrap();
        let next = Daemon::start(dir.path(), &config, false).map(drop);
        says(&next.unwrap_err().to_string(), why);
    }
}

#[test]
fn a_producer_that_does_not_know_a_new_field_goes_on_and_the_field_is_null() {
    let here = Here::start(NUMBERS);
    let (old, source) = connect(here.path());
    old.push(source, &1u64.to_le_bytes()).unwrap();
    old.sync().unwrap();
    let grown = "[[source]]\nname = 'numbers'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n\
                 [[source.field]]\nname = 'm'\ntype = 'u16'\nnullable = true\n";
    let new = here.client();
    assert_eq!(new.define_one(grown).unwrap(), source);
    old.push(source, &2u64.to_le_bytes()).unwrap();
    old.push(source, &[1, 2]).unwrap();
    let counts = old.sync().unwrap().counts;
    assert_eq!((counts.received, counts.stored, counts.refused), (3, 2, 1));
    // One that comes later and still declares the older fields.
    let late = here.client();
    assert_eq!(late.define_one(NUMBERS).unwrap(), source);
    assert_eq!(push(&late, source, [3]).stored, 1);
    let found = payloads(here.path(), "numbers");
    let widened = |n: u8| vec![1, n, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(found, [1u64.to_le_bytes().to_vec(), widened(2), widened(3)]);

    let strict = format!("{grown}[[source.field]]\nname = 'k'\ntype = 'u8'\n");
    new.define_one(&strict).unwrap();
    old.push(source, &4u64.to_le_bytes()).unwrap();
    let synced = old.sync().unwrap();
    says(&synced.reason, "'k'");
    assert_eq!(synced.counts.refused, 2);
}

// G4
#[test]
fn a_reload_by_signal_loses_nothing() {
    let place = Place::new();
    let there = place.start(NUMBERS);
    let (client, source) = connect(&place.dir);
    for round in 0..20u64 {
        let added = format!("{NUMBERS}[[source]]\nname = 'added{round}'\n");
        configuration(&place.dir, &added).unwrap();
        there.signal(Signal::HUP).unwrap();
        push(&client, source, round * 10_000..(round + 1) * 10_000);
    }
    let catalog =
        eventually(|| Some(client.catalog().unwrap()).filter(|text| text.contains("added")));
    assert!(catalog.contains("numbers"));
    stop(there);
    assert!(numbers(&place.dir).into_iter().eq(0..200_000));
}

// G3
#[test]
fn what_a_sync_acknowledges_with_batch_durability_is_durable_whoever_asked_with_it() {
    let here = Here::start(&format!("{SMALL}durability = 'batch'\n{NUMBERS}"));
    let directory = Directory::open(here.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (client, source) = connect(here.path());
                for n in 0..20u64 {
                    client.push(source, &n.to_le_bytes()).unwrap();
                    let synced = client.sync().unwrap();
                    assert_eq!(synced.counts.stored, n + 1);
                    let records = directory.status().unwrap().writer.logs.records;
                    assert!(records.durable >= synced.position, "{records:?}");
                }
            });
        }
    });
    assert_eq!(numbers(here.path()).len(), 160);
}

// case Network and input: a wrong user
#[test]
fn another_user_who_reaches_the_socket_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let here = Here::start(NUMBERS);
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    open(here.path());
    let socket = here.path().join("ingest.sock");
    open(&socket);
    // Perl, for every Debian has it where any user may run it.
    let script = "$s = IO::Socket::UNIX->new(Peer => shift) or die $!; local $/; $d = <$s>;\
                  print ord(substr $d, 4, 1), ' ', ord(substr $d, 12, 1), ' ', substr $d, 16";
    let nobody = "--reuid=65534 --regid=65534 --clear-groups perl -MIO::Socket::UNIX -e";
    let mut setpriv = Command::new("setpriv");
    setpriv.args(nobody.split(' ')).arg(script).arg(&socket);
    let output = setpriv.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && said.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        machine::skip(
            "another user",
            &format!("this user cannot become it: {why}"),
        )
        .unwrap();
        return;
    }
    assert!(said.starts_with("255 4 "), "{said}");
    says(&said, "may not use the daemon's socket; run as");
    assert_eq!(here.daemon().status().unwrap().connections, 0);
}
