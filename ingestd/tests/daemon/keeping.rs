//! What a daemon keeps: retention by bytes, a disk that fills, and sources as they change.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use ingestd::client::Client;
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use ingestd::protocol::{Counts, Shape};
use loom_engine::SourceId;
use loom_engine::check::check;
use loom_engine::query::Directory;

use super::small_disk::Small;
use super::support::{Here, NUMBERS, SMALL, There, eventually, ingestd, numbers, payloads};

fn push_numbers(client: &Client, source: SourceId, from: u64, to: u64) -> Counts {
    for start in (from..to).step_by(1000) {
        let batch: Vec<u8> = (start..start + 1000).flat_map(u64::to_le_bytes).collect();
        let fixed = Shape::Fixed { record_bytes: 8 };
        client.push_batch(source, fixed, &batch).unwrap();
    }
    client.sync().unwrap().counts
}

fn disk_bytes(dir: &Path) -> u64 {
    ["records", "chunks", "times"]
        .iter()
        .flat_map(|log| std::fs::read_dir(dir.join(log)).unwrap())
        .map(|entry| entry.unwrap().metadata().map_or(0, |found| found.len()))
        .sum()
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
    let here = Here::start(&format!("{SMALL}{NUMBERS}"));
    let client = here.client();
    let source = client.define_one(NUMBERS).unwrap();
    push_numbers(&client, source, 0, 1_000_000);
    let before = disk_bytes(here.path());
    assert_eq!(assert_suffix(here.path(), 1_000_000), 0);
    let limit = before - (4 << 20);
    let config = format!("{SMALL}[retention]\nmax_bytes = '{limit}B'\n{NUMBERS}");
    here.daemon()
        .reload(&Config::parse(&config).unwrap())
        .unwrap();
    eventually(|| (disk_bytes(here.path()) <= limit).then_some(()));
    assert!(assert_suffix(here.path(), 1_000_000) > 0);
    let mut most = 0;
    for round in 10..30 {
        push_numbers(&client, source, round * 100_000, (round + 1) * 100_000);
        most = most.max(disk_bytes(here.path()));
    }
    // Files go a moment after they are given up.
    assert!(most <= limit + (8 << 20), "{most} of {limit}");
    eventually(|| (disk_bytes(here.path()) <= limit).then_some(()));
    assert!(here.daemon().status().unwrap().evicted_segments > 10);
    let dir = here.stop();
    let oldest = assert_suffix(dir.path(), 3_000_000);
    assert!(oldest > 1_000_000, "{oldest}");
    let report = check(dir.path()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

// case Archive: retention is faster
#[test]
fn what_must_be_archived_goes_only_when_it_is() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    let to = archive.display();
    let limit = "[retention]\nmax_bytes = '8MiB'\n";
    let required = format!("[archive]\nto = '{to}'\nrequired = true\n");
    let here = Here::start(&format!("{SMALL}{limit}{required}{NUMBERS}"));
    let client = here.client();
    let source = client.define_one(NUMBERS).unwrap();
    let run = || {
        let mut archiver = ingestd();
        archiver.arg("archive").arg(here.path());
        archiver.arg("--to").arg(&archive).output().unwrap()
    };
    push_numbers(&client, source, 0, 1_000_000);
    // Two commands later the daemon has looked at the directory, which is larger than it may be.
    client.sync().unwrap();
    assert_eq!(assert_suffix(here.path(), 1_000_000), 0);
    assert_eq!(here.daemon().status().unwrap().evicted_segments, 0);
    assert!(run().status.success());
    eventually(|| (here.daemon().status().unwrap().evicted_segments > 0).then_some(()));
    push_numbers(&client, source, 1_000_000, 2_000_000);
    client.sync().unwrap();
    let oldest = assert_suffix(here.path(), 2_000_000);
    assert!(oldest <= 1_000_000, "{oldest}");
    let second = run();
    assert!(second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!said.contains("retention removed"), "{said}");
}

// case Archive: retention is faster
#[test]
fn an_archive_that_does_not_answer_keeps_nobody_waiting() {
    let place = tempfile::tempdir().unwrap();
    let archive = place.path().join("archive");
    let to = archive.display();
    let limit = "[retention]\nmax_bytes = '8MiB'\n";
    let required = format!("[archive]\nto = '{to}'\nrequired = true\n");
    std::fs::create_dir(&archive).unwrap();
    // Whoever opens it waits until somebody writes, as for a server that is gone.
    let position = archive.join("_position.json");
    let made = Command::new("mkfifo").arg(&position).status().unwrap();
    assert!(made.success());
    let here = Here::start(&format!("{SMALL}{limit}{required}{NUMBERS}"));
    let client = here.client();
    let source = client.define_one(NUMBERS).unwrap();
    let counts = push_numbers(&client, source, 0, 1_000_000);
    assert_eq!(counts.stored, 1_000_000);
    client.sync().unwrap();
    assert_eq!(here.daemon().status().unwrap().evicted_segments, 0);
    // It answers again: whoever waits, or opens it until it is gone, finds a writer.
    let answering = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&position)
        .unwrap();
    std::fs::remove_file(&position).unwrap();
    drop(answering);
    let mut archiver = ingestd();
    archiver.arg("archive").arg(here.path());
    assert!(
        archiver
            .arg("--to")
            .arg(&archive)
            .output()
            .unwrap()
            .status
            .success()
    );
    eventually(|| (here.daemon().status().unwrap().evicted_segments > 0).then_some(()));
}

#[test]
fn a_disk_that_is_too_full_evicts_all_but_what_is_being_written() {
    let full = "[retention]\nmin_free = '1000000TiB'\n";
    let here = Here::start(&format!("{SMALL}{full}{NUMBERS}"));
    let client = here.client();
    let source = client.define_one(NUMBERS).unwrap();
    let counts = push_numbers(&client, source, 0, 1_000_000);
    assert_eq!(counts.stored, 1_000_000);
    // Of 16 segments of the records all but the last, one after the other.
    eventually(|| (here.daemon().status().unwrap().evicted_segments >= 14).then_some(()));
    assert!(assert_suffix(here.stop().path(), 1_000_000) > 0);
}

// case Disk: full in mid-flush
#[test]
fn a_file_system_that_fills_evicts_or_refuses_and_goes_on() {
    for on_full in ["evict", "refuse"] {
        let Some(small) = Small::mount("36m") else {
            return;
        };
        let dir = small.path().join("loom");
        let config = format!(
            "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n\
             [retention]\nmin_free = '0%'\non_full = '{on_full}'\n{NUMBERS}"
        );
        let daemon =
            ingestd::daemon::Daemon::start(&dir, &Config::parse(&config).unwrap(), false).unwrap();
        let client = Client::connect(&dir).unwrap();
        let source = client.define_one(NUMBERS).unwrap();
        // 64 MB of log on a disk that has room for half of it.
        let counts = push_numbers(&client, source, 0, 4_000_000);
        assert_eq!(counts.received, 4_000_000);
        assert_eq!(
            counts.received,
            counts.stored + counts.refused + counts.dropped
        );
        let status = daemon.status().unwrap();
        if on_full == "evict" {
            assert_eq!(counts.stored, 4_000_000);
            assert!(status.evicted_segments > 0);
            assert!(assert_suffix(&dir, 4_000_000) > 0);
        } else {
            assert!(counts.refused > 0 && counts.stored > 0, "{counts:?}");
            assert_eq!(numbers(&dir).len() as u64, counts.stored);
        }
        daemon.stop().unwrap();
        let report = check(&dir).unwrap();
        assert!(report.is_sound(), "{report:?}");
        // A log that was full to the last byte could not take what was to be said of it: the next daemon says it, once there is room.
        small.grow("400m");
        ingestd::daemon::Daemon::start(&dir, &Config::parse(NUMBERS).unwrap(), false)
            .unwrap()
            .stop()
            .unwrap();
        let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
        let lost = snapshot.losses(&loom_engine::query::Poll::never()).unwrap();
        let lost: u64 = lost.iter().map(|loss| loss.records.unwrap()).sum();
        assert_eq!(lost, counts.refused + counts.dropped);
    }
}

#[test]
fn a_start_on_a_full_file_system_evicts_where_that_is_the_policy() {
    let Some(small) = Small::mount("80m") else {
        return;
    };
    let dir = small.path().join("loom");
    let config = |on_full: &str| {
        let text = format!(
            "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n\
             [retention]\nmin_free = '0%'\non_full = '{on_full}'\n{NUMBERS}"
        );
        Config::parse(&text).unwrap()
    };
    let start = |on_full| ingestd::daemon::Daemon::start(&dir, &config(on_full), false);
    let daemon = start("evict").unwrap();
    let client = Client::connect(&dir).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    push_numbers(&client, source, 0, 2_000_000);
    daemon.stop().unwrap();
    assert_eq!(assert_suffix(&dir, 2_000_000), 0);
    // A stop cut the segments to what they hold. They take several MiB when they are allocated again; now 1 is free.
    let free = {
        let disk = rustix::fs::statvfs(&dir).unwrap();
        disk.f_bavail * disk.f_frsize
    };
    let ballast = vec![1; (free - (1 << 20)) as usize];
    std::fs::write(small.path().join("ballast"), ballast).unwrap();
    let error = start("refuse").err().unwrap().to_string();
    assert!(error.contains("No space left"), "{error}");
    assert!(
        error.contains("free some space, or set [retention] on_full"),
        "{error}"
    );
    assert_eq!(assert_suffix(&dir, 2_000_000), 0);
    let daemon = start("evict").unwrap();
    assert!(assert_suffix(&dir, 2_000_000) > 0);
    let client = Client::connect(&dir).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    assert_eq!(
        push_numbers(&client, source, 2_000_000, 2_100_000).stored,
        100_000
    );
    daemon.stop().unwrap();
    assert!(assert_suffix(&dir, 2_100_000) > 0);
    let report = check(&dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

// case Archive: retention is faster
#[test]
fn a_start_on_a_full_file_system_evicts_nothing_that_must_be_archived_and_is_not() {
    let Some(small) = Small::mount("80m") else {
        return;
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let archive = elsewhere.path().join("archive");
    let dir = small.path().join("loom");
    let config = format!(
        "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\ncompact = 'off'\n\
         [retention]\nmin_free = '0%'\n[archive]\nto = '{}'\nrequired = true\n{NUMBERS}",
        archive.display()
    );
    let config = Config::parse(&config).unwrap();
    let start = || Daemon::start(&dir, &config, false);
    let daemon = start().unwrap();
    let client = Client::connect(&dir).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    push_numbers(&client, source, 0, 2_000_000);
    daemon.stop().unwrap();
    let disk = rustix::fs::statvfs(&dir).unwrap();
    let free = disk.f_bavail * disk.f_frsize;
    let ballast = vec![1; (free - (1 << 20)) as usize];
    std::fs::write(small.path().join("ballast"), ballast).unwrap();
    for _ in 0..2 {
        let error = start().err().unwrap().to_string();
        assert!(
            error.contains("not archived yet") && error.contains("run 'ingestd archive'"),
            "{error}"
        );
        assert_eq!(assert_suffix(&dir, 2_000_000), 0);
    }
    let mut archiver = ingestd();
    archiver.arg("archive").arg(&dir).arg("--to").arg(&archive);
    assert!(archiver.output().unwrap().status.success());
    start().unwrap().stop().unwrap();
    assert!(assert_suffix(&dir, 2_000_000) > 0);
}

// case Disk: full at the start
// case Disk: EFBIG
#[test]
fn a_directory_that_has_no_room_is_refused_at_the_start_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("loom.toml");
    std::fs::write(&config, SMALL).unwrap();
    // No file may be larger than 100 KiB.
    let output = Command::new("bash")
        .args([
            "-c",
            "ulimit -f 100; exec \"$0\" run \"$1\" --config \"$2\"",
        ])
        .arg(ingestd().get_program())
        .arg(dir.path().join("loom"))
        .arg(&config)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("File too large") && error.contains("free some space"),
        "{error}"
    );
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
    let client = here.client();
    let source = client.define_one(NUMBERS).unwrap();
    push_numbers(&client, source, 0, 5000);
    let metrics = get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(
        metrics.contains("loom_stored_records_total{source=\"numbers\"} 5000\n"),
        "{metrics}"
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
    TcpStream::connect(address)
        .unwrap()
        .write_all(&[0xFF; 20_000])
        .unwrap();
    let idle: Vec<_> = (0..8)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    assert!(get("/livez").starts_with("HTTP/1.1 200"));
    // They do not stay open for ever.
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
    let refusing = format!("[retention]\nmin_free = '1000000TiB'\non_full = 'refuse'\n{NUMBERS}");
    here.daemon()
        .reload(&Config::parse(&refusing).unwrap())
        .unwrap();
    eventually(|| get("/readyz").starts_with("HTTP/1.1 503").then_some(()));
    assert!(get("/livez").starts_with("HTTP/1.1 200"));
}

#[test]
fn what_was_closed_stays_closed_when_the_configuration_still_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let other = NUMBERS.replacen("'numbers'", "'other'", 1);
    let config = Config::parse(&format!("{NUMBERS}{other}")).unwrap();
    let start = || Daemon::start(dir.path(), &config, false).unwrap();
    let daemon = start();
    let client = Client::connect(dir.path()).unwrap();
    client.close_source("other").unwrap();
    client.close_index("numbers", "n").unwrap();
    let notes = daemon.reload(&config).unwrap();
    assert_eq!(notes.len(), 2, "{notes:?}");
    daemon.stop().unwrap();
    let daemon = start();
    let catalog = Client::connect(dir.path()).unwrap().catalog().unwrap();
    let catalog: serde_json::Value = serde_json::from_str(&catalog).unwrap();
    assert_eq!(catalog[1]["closed"], true);
    assert_eq!(catalog[0]["closed"], false);
    assert_eq!(catalog[0]["indexes"].as_array().unwrap().len(), 1);
    assert_eq!(catalog[0]["indexes"][0]["closed"], true);
    daemon.stop().unwrap();
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
    for (config, why) in [
        (format!("{SMALL}{refusing}{fresh}{retyped}"), "field 'n'"),
        (
            format!("{SMALL}{refusing}[metrics]\nlisten = '{address}'\n{fresh}{NUMBERS}"),
            "cannot serve metrics",
        ),
        (
            format!("{SMALL}{refusing}[otlp]\nlisten = ['{address}']\n{fresh}{NUMBERS}"),
            "cannot receive OTLP",
        ),
        (
            format!(
                "{SMALL}{refusing}[otlp]\nlisten = ['127.0.0.1:0']\nbearer_file = '/no/such'\n{fresh}{NUMBERS}"
            ),
            "cannot read [otlp] bearer_file",
        ),
    ] {
        let config = Config::parse(&config).unwrap();
        let error = here.daemon().reload(&config).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(here.daemon().is_alive());
        assert!(!client.catalog().unwrap().contains("fresh"));
        // Nor is its retention in effect.
        let source = client.define_one(NUMBERS).unwrap();
        assert_eq!(push_numbers(&client, source, 0, 1000).refused, 0);
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(dir.path(), &Config::parse(NUMBERS).unwrap(), false).unwrap();
        daemon.stop().unwrap();
        let next = Daemon::start(dir.path(), &config, false).map(drop);
        assert!(next.unwrap_err().to_string().contains(why));
    }
}

#[test]
fn a_producer_that_does_not_know_a_new_field_goes_on_and_the_field_is_null() {
    let here = Here::start(NUMBERS);
    let old = here.client();
    let source = old.define_one(NUMBERS).unwrap();
    old.push(source, &1u64.to_le_bytes()).unwrap();
    old.sync().unwrap();
    let grown = "[[source]]\nname = 'numbers'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n\
                 [[source.field]]\nname = 'm'\ntype = 'u16'\nnullable = true\n";
    let new = here.client();
    assert_eq!(new.define_one(grown).unwrap(), source);
    old.push(source, &2u64.to_le_bytes()).unwrap();
    old.push(source, &[1, 2]).unwrap();
    assert_eq!(
        old.sync().unwrap().counts,
        Counts {
            received: 3,
            stored: 2,
            refused: 1,
            dropped: 0
        }
    );
    // One that comes later and still declares the older fields.
    let late = here.client();
    assert_eq!(late.define_one(NUMBERS).unwrap(), source);
    late.push(source, &3u64.to_le_bytes()).unwrap();
    assert_eq!(late.sync().unwrap().counts.stored, 1);
    let found = payloads(here.path(), "numbers");
    let widened = |n: u8| vec![1, n, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(found, [1u64.to_le_bytes().to_vec(), widened(2), widened(3)]);

    let strict = grown.replace(
        "nullable = true\n",
        "nullable = true\n[[source.field]]\nname = 'k'\ntype = 'u8'\n",
    );
    new.define_one(&strict).unwrap();
    old.push(source, &4u64.to_le_bytes()).unwrap();
    let synced = old.sync().unwrap();
    assert!(synced.reason.contains("'k'"), "{}", synced.reason);
    assert_eq!(synced.counts.refused, 2);
}

// G4
#[test]
fn a_reload_by_signal_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("loom.toml");
    std::fs::write(&config, NUMBERS).unwrap();
    let loom = dir.path().join("loom");
    let there = There::start(&loom, &["--config", config.to_str().unwrap()]);
    let client = there.client();
    let source = client.define_one(NUMBERS).unwrap();
    for round in 0..20u64 {
        let added = format!("{NUMBERS}[[source]]\nname = 'added{round}'\n");
        std::fs::write(&config, added).unwrap();
        there.signal("-HUP");
        push_numbers(&client, source, round * 10_000, (round + 1) * 10_000);
    }
    let catalog =
        eventually(|| Some(client.catalog().unwrap()).filter(|text| text.contains("added")));
    assert!(catalog.contains("numbers"));
    there.signal("-TERM");
    assert!(there.wait());
    assert!(numbers(&loom).into_iter().eq(0..200_000));
}

// G3
#[test]
fn what_a_sync_acknowledges_with_batch_durability_is_durable_whoever_asked_with_it() {
    let here = Here::start(&format!("{SMALL}durability = 'batch'\n{NUMBERS}"));
    let directory = Directory::open(here.path()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let client = here.client();
                let source = client.define_one(NUMBERS).unwrap();
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
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "perl",
            "-MIO::Socket::UNIX",
            "-e",
            script,
        ])
        .arg(&socket)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() && said.is_empty() {
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(
            std::env::var_os("CI").is_none(),
            "CI can change users: {why}"
        );
        eprintln!("not tried: this user cannot become another: {why}");
        return;
    }
    assert!(
        said.starts_with("255 4 ") && said.contains("may not use the daemon's socket; run as"),
        "{said}"
    );
    let status = here.daemon().status().unwrap();
    assert_eq!(status.connections, 0);
}
