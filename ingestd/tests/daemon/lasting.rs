//! Clients over the socket outlive their daemon: what was acknowledged is stored once, and the rest is sent again or reported as unsure.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ingestd::client::{ClientError, LastingClient, LastingOptions, Outcome};
use ingestd::protocol::Shape;
use loom_engine::SourceId;
use loom_engine::query::Directory;

use rustix::process::{Pid, Signal, kill_process};

use super::ring_restarts::{Place, kill, lost, stop};
use super::support::{NUMBERS, There, eventually, ingestd, numbers, payloads};

const BATCH: u64 = 100;
const SHAPE: Shape = Shape::Fixed { record_bytes: 8 };

fn connect(dir: &Path, patience: Duration) -> LastingClient {
    let options = LastingOptions {
        name: "test".to_owned(),
        patience,
        ..LastingOptions::default()
    };
    LastingClient::connect_with(dir, options).unwrap()
}

fn push(client: &mut LastingClient, source: SourceId, first: u64) -> Result<(), ClientError> {
    let batch: Vec<u8> = (first..first + BATCH).flat_map(u64::to_le_bytes).collect();
    client.push_batch(source, SHAPE, &batch)
}

/// Pushes the numbers from 0 while the daemon ends in this way and starts again, three times. Returns how many it pushed, and what became of
/// them.
fn outlive(place: &Place, end: fn(There)) -> (u64, Outcome) {
    let pushed = AtomicU64::new(0);
    let ends = AtomicBool::new(false);
    let mut daemon = place.start();
    std::thread::scope(|scope| {
        let producer = scope.spawn(|| {
            let mut client = connect(&place.dir, Duration::from_secs(60));
            let source = client.define_one(NUMBERS).unwrap();
            while !ends.load(Ordering::Relaxed) {
                let first = pushed.load(Ordering::Relaxed);
                push(&mut client, source, first).unwrap();
                pushed.store(first + BATCH, Ordering::Relaxed);
                std::thread::yield_now();
            }
            let outcome = client.sync_durable().unwrap();
            let named: u64 = client.unsure().map(|(_, records)| records).sum();
            assert_eq!(named, outcome.unsure);
            assert_eq!(client.successors().0, 3);
            outcome
        });
        let more = || {
            let before = pushed.load(Ordering::Relaxed);
            eventually(|| (pushed.load(Ordering::Relaxed) > before + 7_000).then_some(()));
        };
        more();
        for _ in 0..3 {
            end(daemon);
            daemon = place.start();
            more();
        }
        ends.store(true, Ordering::Relaxed);
        let outcome = producer.join().unwrap();
        stop(daemon);
        (pushed.load(Ordering::Relaxed), outcome)
    })
}

// G1
#[test]
fn pushed_records_outlive_kills_of_the_daemon_once_or_are_unsure() {
    let place = Place::new();
    let (pushed, outcome) = outlive(&place, kill);
    assert_eq!(outcome.counts.received + outcome.unsure, pushed);
    assert_eq!(outcome.counts.stored, outcome.counts.received);
    let stored = numbers(&place.dir);
    assert!(
        stored.windows(2).all(|two| two[0] < two[1]),
        "in order, none twice"
    );
    let stored = stored.len() as u64;
    assert!(
        (outcome.counts.stored..=pushed).contains(&stored),
        "{stored} of {pushed}: {outcome:?}"
    );
    let lost = lost(&place.dir);
    let reported: u64 = lost.iter().map(|(_, records)| records).sum();
    assert_eq!(reported, outcome.unsure, "{lost:?}");
}

// G4
#[test]
fn pushed_records_outlive_stops_of_the_daemon_once() {
    let place = Place::new();
    let (pushed, outcome) = outlive(&place, stop);
    assert_eq!((outcome.counts.stored, outcome.unsure), (pushed, 0));
    assert!(numbers(&place.dir).into_iter().eq(0..pushed));
    assert_eq!(lost(&place.dir), []);
}

#[test]
fn a_client_without_a_daemon_for_longer_than_its_patience_fails_and_keeps_what_it_did_not_send() {
    let place = Place::new();
    let daemon = place.start();
    let mut client = connect(&place.dir, Duration::from_millis(200));
    let source = client.define_one(NUMBERS).unwrap();
    push(&mut client, source, 0).unwrap();
    client.sync().unwrap();
    kill(daemon);
    let error = push(&mut client, source, BATCH).unwrap_err();
    let ClientError::NoSuccessor { unsent, unsure, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((unsent, unsure), (BATCH, 0));
    let daemon = place.start();
    let outcome = client.sync().unwrap();
    assert_eq!((outcome.counts.stored, outcome.unsent), (2 * BATCH, 0));
    stop(daemon);
    assert!(numbers(&place.dir).into_iter().eq(0..2 * BATCH));
}

fn piped(dir: &Path, arguments: &[&str]) -> (Child, ChildStdin) {
    let mut command = ingestd();
    let (name, rest) = arguments.split_first().unwrap();
    command.arg(name).arg(dir).args(rest).stdin(Stdio::piped());
    let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let stdin = child.stdin.take().unwrap();
    (child, stdin)
}

/// Gives a line for each number, and waits until the source has so many records.
fn give(stdin: &mut impl Write, numbers: std::ops::Range<u64>, dir: &Path, name: &str, all: usize) {
    for number in numbers {
        writeln!(stdin, "{number}").unwrap();
    }
    eventually(|| {
        let snapshot = Directory::open(dir).ok()?.snapshot().ok()?;
        snapshot.source(name).ok()?;
        (payloads(dir, name).len() == all).then_some(())
    });
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// What a load from a pipe says whose daemon ends in this way between two halves of its rows, and starts again.
fn load_over(end: fn(There)) -> (Option<i32>, String, String) {
    let place = Place::new();
    let daemon = place.start();
    let load = ["load", "--source", "s", "--format", "csv", "-"];
    let (child, mut stdin) = piped(&place.dir, &load);
    writeln!(stdin, "n").unwrap();
    give(&mut stdin, 0..3, &place.dir, "s", 3);
    end(daemon);
    let daemon = place.start();
    give(&mut stdin, 3..5, &place.dir, "s", 5);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    stop(daemon);
    assert_eq!(payloads(&place.dir, "s").len(), 5);
    let (counts, errors) = said(&output);
    (output.status.code(), counts, errors)
}

#[test]
fn a_load_from_a_pipe_goes_on_with_the_next_daemon() {
    let (code, counts, errors) = load_over(stop);
    assert_eq!(
        counts, "received=5 stored=5 refused=0 dropped=0\n",
        "{errors}"
    );
    assert!(
        errors.contains("the load went on with the next one"),
        "{errors}"
    );
    assert_eq!(code, Some(0));
}

#[test]
fn a_load_names_the_rows_that_a_killed_daemon_may_have() {
    let (code, counts, errors) = load_over(kill);
    // Whether the first rows were acknowledged depends on how soon the kill came.
    match code {
        Some(0) => assert_eq!(counts, "received=5 stored=5 refused=0 dropped=0\n"),
        _ => {
            assert!(counts.starts_with("received=5 stored="), "{counts}");
            assert!(counts.contains(" unconfirmed="), "{counts}");
            assert!(errors.contains("of source 's' unconfirmed"), "{errors}");
        }
    }
    assert!(
        errors.contains("the load went on with the next one"),
        "{errors}"
    );
}

#[test]
fn a_recording_goes_on_with_the_next_daemon() {
    let place = Place::new();
    let daemon = place.start();
    // A recorded program has no standard input.
    let fifo = place.dir.with_file_name("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let path = fifo.to_str().unwrap();
    let record = ["record", "command", "--source", "out", "--", "cat", path];
    let (child, _) = piped(&place.dir, &record);
    let mut stdin = OpenOptions::new().write(true).open(&fifo).unwrap();
    give(&mut stdin, 0..3, &place.dir, "out", 3);
    stop(daemon);
    let daemon = place.start();
    give(&mut stdin, 3..5, &place.dir, "out", 5);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    stop(daemon);
    let (counts, errors) = said(&output);
    // The last record says how the program ended.
    assert!(
        counts.contains("source=out received=6 stored=6 refused=0 dropped=0"),
        "{counts}{errors}"
    );
    assert!(
        errors.contains("the next daemon took over 1 time"),
        "{errors}"
    );
    assert!(output.status.success());
    assert_eq!(payloads(&place.dir, "out").len(), 6);
}

/// Patience that no test outlives.
const LONG: [&str; 2] = ["--patience", "1h"];

/// Sends the first signal to a program that waits for the next daemon of a directory, and returns what it says.
fn interrupt_wait(child: Child, dir: &Path) -> (Option<i32>, String, String) {
    let socket = dir.join("ingest.sock");
    let _ = std::fs::remove_file(&socket);
    // One who looks for a daemon connects. This is none.
    let listener = UnixListener::bind(&socket).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let (counts, errors) = said(&output);
    assert!(
        errors.contains("the wait for the next daemon on "),
        "{errors}"
    );
    (output.status.code(), counts, errors)
}

/// A number that a line of counts has under a key; 0 if it does not have it.
fn count(counts: &str, key: &str) -> u64 {
    let mut words = counts.split_whitespace().map(|word| word.split_once('='));
    let found = words.find_map(|word| word.filter(|(name, _)| *name == key));
    found.map_or(0, |(_, number)| number.parse().unwrap())
}

#[test]
fn a_signal_ends_a_loads_wait_for_the_next_daemon_and_its_rows_are_counted() {
    for end in [stop, kill] {
        let place = Place::new();
        let daemon = place.start();
        let load = ["load", "--source", "s", "--format", "csv", "-"];
        let (child, mut stdin) = piped(&place.dir, &[&load[..], &LONG].concat());
        writeln!(stdin, "n").unwrap();
        give(&mut stdin, 0..3, &place.dir, "s", 3);
        end(daemon);
        writeln!(stdin, "3").unwrap();
        let (code, counts, errors) = interrupt_wait(child, &place.dir);
        assert_eq!(code, Some(1), "{errors}");
        let of = |key| count(&counts, key);
        assert_eq!((of("received"), of("dropped")), (4, 1), "{counts}{errors}");
        // Whether a killed daemon had acknowledged the first rows depends on how soon the kill came.
        assert_eq!(of("stored") + of("unconfirmed"), 3, "{counts}{errors}");
    }
}

#[test]
fn a_signal_ends_a_recordings_wait_for_the_next_daemon_and_its_records_are_counted() {
    for end in [stop, kill] {
        let place = Place::new();
        let daemon = place.start();
        let script = "while true; do echo line; sleep 0.01; done";
        let record = ["record", "command", "--source", "log"];
        let program = ["--", "sh", "-c", script];
        let (child, stdin) = piped(&place.dir, &[&record[..], &LONG, &program].concat());
        drop(stdin);
        eventually(|| {
            let snapshot = Directory::open(&place.dir).ok()?.snapshot().ok()?;
            snapshot.source("log").ok()?;
            (payloads(&place.dir, "log").len() > 2).then_some(())
        });
        end(daemon);
        let (code, counts, errors) = interrupt_wait(child, &place.dir);
        assert_eq!(code, Some(1), "{counts}{errors}");
        let of = |key| count(&counts, key);
        assert_eq!(of("received"), of("stored") + of("dropped"), "{counts}");
        assert!(of("stored") + of("unsure") > 0, "{counts}{errors}");
        assert!(of("dropped") > 0, "{counts}{errors}");
    }
}
