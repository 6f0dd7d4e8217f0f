//! Records through shared memory: pushed by a client of this process or of another, counted and stored by the daemon.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use ingestd::client::{Client, RingClient, RingOptions};
use ingestd::protocol::ErrorCode;
use loom_engine::SourceId;
use loom_tests::command::{eventually, source, until};

use super::connections::is_refused;
use super::support::{Here, NUMBERS, SMALL, dropping, losses, lost, numbers, payloads};

/// The least ring: it is full soon.
const SMALL_RING: u64 = 64 << 10;

fn small_ring(here: &Here) -> RingClient {
    let options = RingOptions {
        capacity_bytes: SMALL_RING,
        ..RingOptions::default()
    };
    RingClient::connect_with(here.path(), options).unwrap()
}

fn push_numbers(client: &mut RingClient, source: SourceId, numbers: std::ops::Range<u64>) {
    for n in numbers {
        client.push(source, &n.to_le_bytes()).unwrap();
    }
}

#[test]
fn what_is_pushed_into_a_ring_is_visible_after_a_sync_in_order_and_counted() {
    let here = Here::start(SMALL);
    let mut client = RingClient::connect(here.path()).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    push_numbers(&mut client, source, 0..300_000);
    let synced = client.sync().unwrap();
    let counted = (synced.counts.received, synced.counts.stored);
    assert_eq!(counted, (300_000, 300_000));
    assert!(numbers(here.path()).into_iter().eq(0..300_000));
    push_numbers(&mut client, source, 300_000..300_007);
    assert_eq!(client.close().unwrap().counts.stored, 300_007);
    let status = here.daemon().status().unwrap();
    assert_eq!(status.sources[0].stored, 300_007);
}

#[test]
fn records_of_any_length_and_the_time_of_their_push_go_through_a_ring() {
    let here = Here::start(SMALL);
    let toml = source("texts", "t utf8");
    let toml = toml.replacen("[[source.field]]", "time = 'own'\n[[source.field]]", 1);
    let mut client = RingClient::connect(here.path()).unwrap();
    let source = client.define_one(&toml).unwrap();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
    let before = now();
    let texts: Vec<String> = (0..2000).map(|n| "x".repeat(n % 300)).collect();
    for text in &texts {
        let payload = [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
        client.push(source, &payload).unwrap();
    }
    assert_eq!(client.sync().unwrap().counts.stored, 2000);
    let after = now();
    let mut last = i64::MIN;
    for (payload, text) in payloads(here.path(), "texts").into_iter().zip(&texts) {
        let (time, rest) = payload.split_first_chunk().unwrap();
        let time = i64::from_le_bytes(*time);
        // The log's clock and the time of day differ by as much as it slews.
        let slack = 5_000_000;
        let owed = before - slack..after + slack;
        assert!(owed.contains(&time), "{before} {time} {after}");
        assert!(time >= last, "one producer's stamps ascend");
        last = time;
        assert_eq!(rest[2..], *text.as_bytes());
    }
}

// G9
#[test]
fn a_full_ring_waits_or_drops_as_its_source_says_and_each_drop_is_counted() {
    let waiting = NUMBERS.replacen("numbers", "waiting", 1);
    let here = Here::start(SMALL);
    let mut client = small_ring(&here);
    let ids = client.define(&format!("{}{waiting}", dropping())).unwrap();
    let [(dropping, _), (waiting, _)] = ids[..] else {
        panic!("two sources");
    };
    push_numbers(&mut client, waiting, 0..500_000);
    let waited = client.sync().unwrap().counts;
    assert_eq!((waited.received, waited.stored), (500_000, 500_000));
    push_numbers(&mut client, dropping, 0..500_000);
    let status = here.daemon().status().unwrap();
    assert_eq!((status.rings, status.ring_bytes), (2, 2 * SMALL_RING));
    let counts = client.close().unwrap().counts;
    // The rings end behind the connection.
    let status = eventually(|| {
        let status = here.daemon().status().unwrap();
        (status.rings == 0).then_some(status)
    });
    assert_eq!(status.ring_bytes, 0);
    // The others were taken out of the ring, and the log had no room for them.
    assert!(status.ring_dropped <= counts.dropped);
    assert_eq!(counts.received, 1_000_000);
    assert_eq!(counts.received, counts.stored + counts.dropped);
    let has_dropped = status.ring_dropped > 0;
    assert!(has_dropped, "a push is faster than a look every 500 µs");
    assert_eq!(payloads(here.path(), "waiting").len(), 500_000);
    let stored = numbers(here.path());
    assert_eq!(stored.len() as u64, counts.stored - 500_000);
    assert!(stored.is_sorted());
    let dir = here.stop();
    let losses = losses(dir.path());
    assert_eq!(lost(&losses), counts.dropped, "{losses:?}");
    assert!(losses.iter().all(|loss| loss.reason == "overload"));
}

#[test]
fn records_in_a_ring_outlive_a_producer_that_is_killed_at_any_point() {
    let here = Here::start(SMALL);
    let mut before = 0;
    for round in 1..=5 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([
            "--exact",
            "rings::a_producer_that_never_ends",
            "--nocapture",
        ]);
        command.env("LOOM_RING_DIR", here.path());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut pushed = 0;
        while pushed < round * 12_345 {
            let line = lines.next().unwrap().unwrap();
            pushed = pushed.max(pushed_by(&line));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // The records of the lines in the pipe were pushed too.
        for line in lines.map_while(Result::ok) {
            pushed = pushed.max(pushed_by(&line));
        }
        // The ring ends behind its connection. Where the log has no room for a moment, what was taken out of the ring waits for it without either.
        until(|| {
            let status = here.daemon().status().unwrap();
            let is_empty = status.connections == 0 && status.rings == 0;
            is_empty && status.waiting_connections == 0
        });
        here.client().sync().unwrap();
        let stored = numbers(here.path()).split_off(before);
        let count = stored.len() as u64;
        assert!(count >= pushed, "{count} of {pushed}");
        assert!(stored.into_iter().eq(0..count), "in order, without a hole");
        before += count as usize;
    }
}

/// The number in a line of the producer; a kill may cut the line off.
fn pushed_by(line: &str) -> u64 {
    let number = line.strip_prefix("pushed ").unwrap_or_default();
    number.parse().unwrap_or(0)
}

/// Run by the test above in a process of its own; alone it does nothing.
#[test]
fn a_producer_that_never_ends() {
    let Some(dir) = std::env::var_os("LOOM_RING_DIR") else {
        return;
    };
    let mut client = RingClient::connect(dir.as_ref()).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    for n in 0u64.. {
        client.push(source, &n.to_le_bytes()).unwrap();
        if n % 100 == 99 {
            println!("\npushed {}", n + 1);
        }
    }
}

#[test]
fn a_ring_is_refused_by_name() {
    let here = Here::start(SMALL);
    let client = Client::connect(here.path()).unwrap();
    let refused = |source, capacity, code, why: &str| {
        is_refused(client.open_ring(source, capacity), code, why);
    };
    let nobody = "no open source has the id 77";
    refused(SourceId(77), 0, ErrorCode::NotFound, nobody);
    let source = client.define_one(NUMBERS).unwrap();
    refused(
        source,
        12_345,
        ErrorCode::Definition,
        "a ring of 12345 bytes",
    );
    let open = |_| client.open_ring(source, 64 << 20).unwrap();
    let rings: Vec<_> = (0..16).map(open).collect();
    refused(
        source,
        SMALL_RING,
        ErrorCode::TooManyConnections,
        "over the limit",
    );
    drop((rings, client));
    let client = here.client();
    eventually(|| client.open_ring(source, 64 << 20).ok());
}

#[test]
fn a_record_becomes_visible_without_a_sync() {
    let here = Here::start(SMALL);
    let mut client = RingClient::connect(here.path()).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    for n in 0..5u64 {
        client.push(source, &n.to_le_bytes()).unwrap();
        until(|| numbers(here.path()).len() as u64 == n + 1);
    }
}
