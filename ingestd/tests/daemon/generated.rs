//! The demo: what it generates, and what its truth file lists.

use std::path::Path;

use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::{TimeRange, Timestamp};
use serde_json::Value;

use super::support::ingestd;

/// Time, first u64 (the id), second u64, and payload of each record.
fn records(dir: &Path, source: &str) -> Vec<(Timestamp, u64, u64, Vec<u8>)> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let source = snapshot.source(source).unwrap().id;
    let mut found = Vec::new();
    raw_scan(
        &snapshot,
        source,
        TimeRange::ALL,
        &Poll::never(),
        |record| {
            let word =
                |at: usize| u64::from_le_bytes(record.payload[at..at + 8].try_into().unwrap());
            found.push((record.ts, word(0), word(8), record.payload.to_vec()));
            std::ops::ControlFlow::Continue(())
        },
    )
    .unwrap();
    found
}

#[test]
fn the_six_slowest_requests_are_those_of_the_six_mangled_packets() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let truth_path = root.path().join("truth.jsonl");
    let output = ingestd()
        .args([
            "demo",
            dir.to_str().unwrap(),
            "--seconds",
            "2",
            "--rate",
            "200000",
            "--truth",
        ])
        .arg(&truth_path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!dir.join("ingest.sock").exists());
    let truth: Vec<Value> = std::fs::read_to_string(&truth_path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(truth.len(), 6);

    let mut requests = records(&dir, "redis_request");
    let mut calls = records(&dir, "syscall");
    let packets = records(&dir, "packet");
    assert_eq!(requests.len() + calls.len() + packets.len(), 400_000 + 18);

    let ids = |key: &str| {
        let mut ids: Vec<u64> = truth
            .iter()
            .map(|needle| needle[key].as_u64().unwrap())
            .collect();
        ids.sort_unstable();
        ids
    };
    let slowest = |records: &mut Vec<(Timestamp, u64, u64, Vec<u8>)>| {
        records.sort_by_key(|record| std::cmp::Reverse(record.2));
        assert!(
            records[5].2 > 3 * records[6].2,
            "the six are slowest by far"
        );
        let mut six: Vec<u64> = records[..6].iter().map(|record| record.1).collect();
        six.sort_unstable();
        six
    };
    assert_eq!(slowest(&mut requests), ids("request"));
    assert_eq!(slowest(&mut calls), ids("syscall"));
    let port = |packet: &[u8], at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
    let mut mangled: Vec<u64> = packets
        .iter()
        .filter(|(_, _, _, packet)| port(packet, 32) != 6379 && port(packet, 34) != 6379)
        .map(|packet| packet.1)
        .collect();
    mangled.sort_unstable();
    assert_eq!(mangled, ids("packet"));

    let time = |records: &[(Timestamp, u64, u64, Vec<u8>)], id: &Value| {
        records
            .iter()
            .find(|record| Some(record.1) == id.as_u64())
            .unwrap()
            .0
            .0
    };
    for needle in &truth {
        let packet = time(&packets, &needle["packet"]);
        let call = time(&calls, &needle["syscall"]);
        let request = time(&requests, &needle["request"]);
        assert!(
            packet < call && call < request,
            "{needle}: the cause comes first"
        );
    }
}
