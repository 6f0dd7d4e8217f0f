//! The demo: what it generates, and what its truth file lists.

use std::path::Path;
use std::process::Stdio;

use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::{TimeRange, Timestamp};
use loom_tests::command::{Ended, ingestd, word};
use loom_tests::daemon::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

type Record = (Timestamp, u64, u64, Vec<u8>);

/// Time, first u64 (the id), second u64, and payload of each record.
fn records(dir: &Path, source: &str) -> Vec<Record> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let source = snapshot.source(source).unwrap().id;
    let mut found = Vec::new();
    let all = TimeRange::ALL;
    raw_scan(&snapshot, source, all, &Poll::never(), |record| {
        let payload = record.payload;
        let word = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
        found.push((record.ts, word(0), word(8), payload.to_vec()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    found
}

#[test]
fn the_six_slowest_requests_are_those_of_the_six_mangled_packets() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let truth = root.path().join("truth.jsonl");
    let rate = ["--seconds", "2", "--rate", "200000", "--truth"];
    let demo = ["demo", word(&dir)].into_iter().chain(rate);
    Ended::of(&mut ingestd(demo.chain([word(&truth)]))).ends(0);
    assert!(!dir.join("ingest.sock").exists());
    let truth = std::fs::read_to_string(&truth).unwrap();
    let needles = truth
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let truth: Vec<Value> = needles.collect();
    assert_eq!(truth.len(), 6);

    let mut requests = records(&dir, "redis_request");
    let mut calls = records(&dir, "syscall");
    let packets = records(&dir, "packet");
    assert_eq!(requests.len() + calls.len() + packets.len(), 400_000 + 18);

    let ids = |key: &str| {
        let ids = truth.iter().map(|needle| needle[key].as_u64().unwrap());
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        ids
    };
    let slowest = |records: &mut Vec<Record>| {
        records.sort_by_key(|record| std::cmp::Reverse(record.2));
        let are_apart = records[5].2 > 3 * records[6].2;
        assert!(are_apart, "the six are slowest by far");
        let mut six: Vec<u64> = records[..6].iter().map(|record| record.1).collect();
        six.sort_unstable();
        six
    };
    assert_eq!(slowest(&mut requests), ids("request"));
    assert_eq!(slowest(&mut calls), ids("syscall"));
    let port = |packet: &[u8], at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
    let is_mangled = |packet: &[u8]| port(packet, 32) != 6379 && port(packet, 34) != 6379;
    let mangled = packets
        .iter()
        .filter(|(_, _, _, packet)| is_mangled(packet));
    let mut mangled: Vec<u64> = mangled.map(|packet| packet.1).collect();
    mangled.sort_unstable();
    assert_eq!(mangled, ids("packet"));

    let time = |records: &[Record], id: &Value| {
        let found = records.iter().find(|record| Some(record.1) == id.as_u64());
        found.unwrap().0
    };
    for needle in &truth {
        let packet = time(&packets, &needle["packet"]);
        let call = time(&calls, &needle["syscall"]);
        let request = time(&requests, &needle["request"]);
        let in_order = packet < call && call < request;
        assert!(in_order, "{needle}: the cause comes first");
    }
}

#[test]
fn a_signal_during_the_start_of_its_daemon_ends_the_demo() {
    let root = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let dir = root.path().join(round.to_string());
        let long = ["--seconds", "3600", "--rate", "3000"];
        let mut demo = ingestd(["demo", word(&dir)].into_iter().chain(long));
        let mut demo = demo.stderr(Stdio::null()).spawn().unwrap();
        // The daemon creates it first.
        assert!(wait_until(|| Ok(dir.exists())).unwrap());
        kill_process(Pid::from_child(&demo), Signal::TERM).unwrap();
        let ended = wait_until(|| Ok(demo.try_wait()?.is_some())).unwrap();
        demo.kill().unwrap();
        assert!(demo.wait().unwrap().success() && ended, "{round}");
    }
}
