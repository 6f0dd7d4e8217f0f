//! Clients over the socket outlive their daemon: what was acknowledged is stored once, and the rest is sent again or reported as unsure.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ingestd::client::{Client, ClientError, LastingClient, LastingOptions, Outcome, RingClient};
use ingestd::protocol::{
    ErrorCode, HEADER_BYTES, Header, Malformed, REQUEST_BODY_BYTES_MAX, Reply, Shape,
};
use loom_engine::SourceId;
use loom_engine::query::Directory;
use loom_tests::command::{Ended, declared, ingestd, piped, says, send, until, word};
use rustix::process::Signal;

use super::outlive::outlive;
use super::support::{NUMBERS, Place, There, kill, losses, lost, numbers, payloads, stop};

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

/// Pushes the numbers from 0 while the daemon ends in this way three times. Returns how many it pushed, and their outcome.
fn push_over(place: &Place, end: fn(There)) -> (u64, Outcome) {
    let mut given = outlive(place, 1, 3, end, |_, progress| {
        let mut client = connect(&place.dir, Duration::from_secs(60));
        let source = client.define_one(NUMBERS).unwrap();
        let mut pushed = 0;
        while progress.goes_on(pushed) {
            push(&mut client, source, pushed).unwrap();
            pushed += BATCH;
        }
        let outcome = client.sync_durable().unwrap();
        let named: u64 = client.unsure().map(|(_, records)| records).sum();
        assert_eq!(named, outcome.unsure);
        assert_eq!(client.successors().0, 3);
        (pushed, outcome)
    });
    given.remove(0)
}

// G1
#[test]
fn pushed_records_outlive_kills_of_the_daemon_once_or_are_unsure() {
    let place = Place::new();
    let (pushed, outcome) = push_over(&place, kill);
    assert_eq!(outcome.counts.received + outcome.unsure, pushed);
    assert_eq!(outcome.counts.stored, outcome.counts.received);
    let stored = numbers(&place.dir);
    let in_order = stored.windows(2).all(|two| two[0] < two[1]);
    assert!(in_order, "in order, none twice");
    let owed = outcome.counts.stored..=pushed;
    assert!(owed.contains(&(stored.len() as u64)), "{outcome:?}");
    assert_eq!(lost(&losses(&place.dir)), outcome.unsure);
}

// G4
#[test]
fn pushed_records_outlive_stops_of_the_daemon_once() {
    let place = Place::new();
    let (pushed, outcome) = push_over(&place, stop);
    assert_eq!((outcome.counts.stored, outcome.unsure), (pushed, 0));
    assert!(numbers(&place.dir).into_iter().eq(0..pushed));
    assert_eq!(losses(&place.dir), []);
}

#[test]
fn a_client_without_a_daemon_for_longer_than_its_patience_fails_and_keeps_what_it_did_not_send() {
    let place = Place::new();
    let daemon = place.start("");
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
    let daemon = place.start("");
    let outcome = client.sync().unwrap();
    assert_eq!((outcome.counts.stored, outcome.unsent), (2 * BATCH, 0));
    stop(daemon);
    assert!(numbers(&place.dir).into_iter().eq(0..2 * BATCH));
}

/// Closes the source `numbers` and its index.
fn close_numbers(place: &Place) {
    let client = Client::connect(&place.dir).unwrap();
    client.close_index("numbers", "n").unwrap();
    client.close_source("numbers").unwrap();
}

// G1
#[test]
fn a_source_that_was_closed_stays_closed_when_its_producers_connect_again() {
    let place = Place::new();
    let daemon = place.start("");
    let mut lasting = connect(&place.dir, Duration::from_secs(60));
    let mut ring = RingClient::connect(&place.dir).unwrap();
    let source = lasting.define_one(NUMBERS).unwrap();
    assert_eq!(ring.define_one(NUMBERS).unwrap(), source);
    push(&mut lasting, source, 0).unwrap();
    lasting.sync().unwrap();
    close_numbers(&place);
    stop(daemon);
    let daemon = place.start("");
    push(&mut lasting, source, BATCH).unwrap();
    let outcome = lasting.sync().unwrap();
    assert_eq!(
        (outcome.counts.stored, outcome.counts.refused),
        (BATCH, BATCH)
    );
    says(&outcome.reason, "closed");
    ring.push(source, &7u64.to_le_bytes()).unwrap();
    let synced = ring.sync().unwrap();
    assert_eq!((synced.counts.stored, synced.counts.refused), (0, 1));
    says(&synced.reason, "closed");
    // A definition opens the source again.
    assert_eq!(ring.define_one(NUMBERS).unwrap(), source);
    ring.push(source, &BATCH.to_le_bytes()).unwrap();
    assert_eq!(ring.close().unwrap().counts.stored, 1);
    stop(daemon);
    assert!(numbers(&place.dir).into_iter().eq(0..=BATCH));
    assert_eq!(lost(&losses(&place.dir)), BATCH + 1);
}

/// The kind of the request *define again*.
const DEFINE_AGAIN: u8 = 0x15;

/// Makes the daemon one that does not know *define again*: a listener takes the place of its socket, passes requests and replies on, and answers this
/// request as such a daemon does. Returns how many it has refused.
fn make_older(dir: &Path) -> Arc<AtomicU64> {
    let (socket, newer) = (dir.join("ingest.sock"), dir.join("newer.sock"));
    std::fs::rename(&socket, &newer).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let refused = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&refused);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            pass_on(
                client.unwrap(),
                UnixStream::connect(&newer).unwrap(),
                &counted,
            );
        }
    });
    refused
}

/// Passes one connection on, until the client ends it or is refused.
fn pass_on(mut client: UnixStream, mut daemon: UnixStream, refused: &AtomicU64) {
    let (mut replies, mut replied) = (daemon.try_clone().unwrap(), client.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut replies, &mut replied));
    let mut head = [0; HEADER_BYTES];
    while client.read_exact(&mut head).is_ok() {
        let header = Header::decode(&head, REQUEST_BODY_BYTES_MAX)
            .unwrap()
            .unwrap();
        let mut body = vec![0; header.body_bytes];
        client.read_exact(&mut body).unwrap();
        if header.kind == DEFINE_AGAIN {
            refused.fetch_add(1, Ordering::Relaxed);
            let mut answer = Vec::new();
            let error = Reply::Error {
                request: None,
                code: ErrorCode::Malformed,
                message: Malformed::UnknownKind(header.kind).to_string(),
            };
            error.encode(&mut answer);
            client.write_all(&answer).unwrap();
            break;
        }
        daemon.write_all(&[&head[..], &body].concat()).unwrap();
    }
    let _ = daemon.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

// G4
#[test]
fn a_client_goes_on_with_a_daemon_that_is_older_than_define_again() {
    let place = Place::new();
    let daemon = place.start("");
    let mut client = connect(&place.dir, Duration::from_secs(60));
    let source = client.define_one(NUMBERS).unwrap();
    push(&mut client, source, 0).unwrap();
    client.sync().unwrap();
    stop(daemon);
    let daemon = place.start("");
    let refused = make_older(&place.dir);
    push(&mut client, source, BATCH).unwrap();
    let outcome = client.sync_durable().unwrap();
    assert_eq!((outcome.counts.stored, outcome.unsure), (2 * BATCH, 0));
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    drop(client);
    stop(daemon);
    assert!(numbers(&place.dir).into_iter().eq(0..2 * BATCH));
}

// G1
#[test]
fn a_producer_outlives_a_restart_after_its_index_was_replaced() {
    let place = Place::new();
    let daemon = place.start("");
    let mut ring = RingClient::connect(&place.dir).unwrap();
    let source = ring.define_one(NUMBERS).unwrap();
    let operator = Client::connect(&place.dir).unwrap();
    operator.close_index("numbers", "n").unwrap();
    let other = "name = 'n'\nvalue = 'n'\nwhere = 'n > 5'";
    operator.add_index("numbers", other).unwrap();
    stop(daemon);
    let daemon = place.start("");
    ring.push(source, &7u64.to_le_bytes()).unwrap();
    assert_eq!(ring.close().unwrap().counts.stored, 1);
    stop(daemon);
}

/// A load of CSV from a pipe into the source `s`, whose field is `n`.
fn load(place: &Place, more: &[&str]) -> (Child, ChildStdin) {
    let fields = declared(&place.root.path().join("fields"), "s", "n i64");
    let mut load = ingestd(["load", word(&place.dir), "--source", "s", "--format", "csv"]);
    let (child, mut stdin) = piped(load.args(["--fields", &fields, "-"]).args(more));
    writeln!(stdin, "n").unwrap();
    (child, stdin)
}

fn record(place: &Place, words: &[&str]) -> (Child, ChildStdin) {
    piped(ingestd(["record", word(&place.dir), "command", "--source"]).args(words))
}

/// Waits until a source is there and has so many records.
fn until_stored(dir: &Path, name: &str, holds: impl Fn(usize) -> bool) {
    until(|| {
        let snapshot = Directory::open(dir).and_then(|dir| dir.snapshot());
        let is_there = snapshot.is_ok_and(|snapshot| snapshot.source(name).is_ok());
        is_there && holds(payloads(dir, name).len())
    });
}

/// Gives a line for each number, and waits until the source has so many records.
fn give(stdin: &mut impl Write, numbers: std::ops::Range<u64>, dir: &Path, name: &str) {
    let end = numbers.end as usize;
    for number in numbers {
        writeln!(stdin, "{number}").unwrap();
    }
    until_stored(dir, name, |stored| stored == end);
}

/// Loads from a pipe, while the daemon ends in this way between two halves of the rows, and starts again.
fn load_over(end: fn(There)) -> Ended {
    let place = Place::new();
    let daemon = place.start("");
    let (child, mut stdin) = load(&place, &[]);
    give(&mut stdin, 0..3, &place.dir, "s");
    end(daemon);
    let daemon = place.start("");
    give(&mut stdin, 3..5, &place.dir, "s");
    drop(stdin);
    let ended = Ended::once(child);
    stop(daemon);
    assert_eq!(payloads(&place.dir, "s").len(), 5);
    ended.says("the load went on with the next one")
}

#[test]
fn a_load_from_a_pipe_goes_on_with_the_next_daemon() {
    let loaded = load_over(stop).ends(0);
    loaded.prints("received=5 stored=5 refused=0 dropped=0\n");
}

#[test]
fn a_load_names_the_rows_that_a_killed_daemon_may_have() {
    let loaded = load_over(kill);
    // Whether the first rows were acknowledged depends on how soon the kill came.
    if loaded.code == Some(0) {
        loaded.prints("received=5 stored=5 refused=0 dropped=0\n");
    } else {
        assert!(loaded.out.starts_with("received=5 stored="), "{loaded:?}");
        says(&loaded.out, " unconfirmed=");
        says(&loaded.err, "of source 's' unconfirmed");
    }
}

#[test]
fn a_recording_goes_on_with_the_next_daemon() {
    let place = Place::new();
    let daemon = place.start("");
    // A recorded program has no standard input.
    let fifo = place.dir.with_file_name("fifo");
    Ended::of(Command::new("mkfifo").arg(&fifo)).ends(0);
    let (child, _) = record(&place, &["out", "--", "cat", word(&fifo)]);
    let mut stdin = OpenOptions::new().write(true).open(&fifo).unwrap();
    give(&mut stdin, 0..3, &place.dir, "out");
    stop(daemon);
    let daemon = place.start("");
    give(&mut stdin, 3..5, &place.dir, "out");
    drop(stdin);
    let recorded = Ended::once(child).ends(0);
    stop(daemon);
    // The last record says how the program ended.
    let recorded = recorded.says("source=out received=6 stored=6 refused=0 dropped=0");
    recorded.says("the next daemon took over 1 time");
    assert_eq!(payloads(&place.dir, "out").len(), 6);
}

/// Patience that no test outlives.
const LONG: [&str; 2] = ["--patience", "1h"];

/// Sends the first signal to a program that waits for the next daemon of a directory. Returns what it says, and what it counts by a key.
fn interrupt_wait(child: Child, dir: &Path) -> (Ended, impl Fn(&str) -> u64) {
    let socket = dir.join("ingest.sock");
    let _ = std::fs::remove_file(&socket);
    // One who looks for a daemon connects. This is none.
    let listener = UnixListener::bind(&socket).unwrap();
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    send(&child, Signal::INT);
    let ended = Ended::once(child).ends(1);
    let ended = ended.says("the wait for the next daemon on ");
    let counts = ended.out.clone();
    let count = move |key: &str| {
        let mut words = counts
            .split_whitespace()
            .filter_map(|it| it.split_once('='));
        let found = words.find(|(name, _)| *name == key);
        found.map_or(0, |(_, number)| number.parse().unwrap())
    };
    (ended, count)
}

#[test]
fn a_signal_ends_a_loads_wait_for_the_next_daemon_and_its_rows_are_counted() {
    for end in [stop, kill] {
        let place = Place::new();
        let daemon = place.start("");
        let (child, mut stdin) = load(&place, &LONG);
        give(&mut stdin, 0..3, &place.dir, "s");
        end(daemon);
        writeln!(stdin, "3").unwrap();
        let (ended, count) = interrupt_wait(child, &place.dir);
        // A load that waits for an answer learns of the end before it reads the last row.
        let last = (count("received"), count("dropped"));
        assert!([(4, 1), (3, 0)].contains(&last), "{ended:?}");
        // Whether a killed daemon had acknowledged the first rows depends on how soon the kill came.
        assert_eq!(count("stored") + count("unconfirmed"), 3, "{ended:?}");
    }
}

#[test]
fn a_signal_ends_a_recordings_wait_for_the_next_daemon_and_its_records_are_counted() {
    for end in [stop, kill] {
        let place = Place::new();
        let daemon = place.start("");
        let script = "while true; do echo line; sleep 0.01; done";
        let program = ["--", "sh", "-c", script];
        let (child, stdin) = record(&place, &[&["log"], &LONG[..], &program].concat());
        drop(stdin);
        until_stored(&place.dir, "log", |stored| stored > 2);
        end(daemon);
        let (ended, count) = interrupt_wait(child, &place.dir);
        let received = count("stored") + count("dropped");
        assert_eq!(count("received"), received, "{ended:?}");
        // Of lines that it reads later none may be there, if it waits for an answer when the daemon ends.
        assert!(count("stored") + count("unsure") > 0, "{ended:?}");
    }
}
