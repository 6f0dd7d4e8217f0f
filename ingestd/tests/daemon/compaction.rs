//! What the daemon rewrites as columns while it records: what it reports, that every record stays, that limits go by what is on the disk.

use std::path::Path;

use ingestd::client::Client;
use ingestd::config::Config;
use ingestd::daemon::DaemonStatus;
use ingestd::protocol::Shape;
use loom_engine::check::check;

use super::support::{Here, NUMBERS, SMALL, There, eventually, numbers};

/// Small files, which become columns as soon as they are full.
fn small(more: &str) -> String {
    format!("{SMALL}durability = '10ms'\ncompact_after = '0s'\n{more}{NUMBERS}")
}

fn push(client: &Client, from: u64, to: u64) {
    let source = client.define_one(NUMBERS).unwrap();
    for start in (from..to).step_by(1000) {
        let batch: Vec<u8> = (start..start + 1000).flat_map(u64::to_le_bytes).collect();
        let fixed = Shape::Fixed { record_bytes: 8 };
        client.push_batch(source, fixed, &batch).unwrap();
    }
    client.sync().unwrap();
}

/// The status, once so many segments are columns.
fn once_columns(client: &Client, segments: u64) -> DaemonStatus {
    eventually(|| {
        let status = DaemonStatus::from_json(&client.status().unwrap()).unwrap();
        (status.column_segments >= segments).then_some(status)
    })
}

fn column_files(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir.join("records")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".columns")).count() as u64
}

#[test]
fn full_files_become_columns_while_records_come_in() {
    let here = Here::start(&small(""));
    let client = here.client();
    for round in 0..5 {
        push(&client, round * 200_000, (round + 1) * 200_000);
        once_columns(&client, round + 1);
        let end = (round + 1) * 200_000;
        assert!(numbers(here.path()).into_iter().eq(0..end));
    }
    let status = once_columns(&client, 10);
    assert_eq!(status.column_segments << 20, status.column_rows_bytes);
    assert!(
        status.column_bytes * 2 < status.column_rows_bytes,
        "{status:?}"
    );
    assert!(status.segment_bytes < status.records_end, "{status:?}");
    let dir = here.stop();
    assert!(column_files(dir.path()) >= 10);
    assert!(numbers(dir.path()).into_iter().eq(0..1_000_000));
    assert!(check(dir.path()).unwrap().is_sound());
}

#[test]
fn a_daemon_that_is_killed_while_it_compacts_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let (dir, config) = (home.path().join("loom"), home.path().join("loom.toml"));
    std::fs::write(&config, small("")).unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    for round in 0..5 {
        let there = There::start(&dir, &arguments);
        let client = there.client();
        push(&client, round * 100_000, (round + 1) * 100_000);
        // Somewhere between two of its segments.
        once_columns(&client, round);
        drop(there);
        let end = (round + 1) * 100_000;
        assert!(numbers(&dir).into_iter().eq(0..end));
    }
    let there = There::start(&dir, &arguments);
    once_columns(&there.client(), 6);
    there.signal("-TERM");
    assert!(there.wait());
    assert!(numbers(&dir).into_iter().eq(0..500_000));
    let report = check(&dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let drafts = std::fs::read_dir(dir.join("records")).unwrap();
    let names = drafts.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".new")).count(), 0);
}

#[test]
fn limits_go_by_what_columns_take() {
    let here = Here::start(&small("[retention]\nmax_bytes = '12MiB'\n"));
    let client = here.client();
    // 16 MiB as rows; each part is columns before the next begins.
    for round in 0..10 {
        push(&client, round * 100_000, (round + 1) * 100_000);
        once_columns(&client, round);
    }
    assert_eq!(here.daemon().status().unwrap().evicted_segments, 0);
    assert!(numbers(here.path()).into_iter().eq(0..1_000_000));
}

#[test]
fn files_stay_rows_where_the_configuration_says_so() {
    let off = small("").replace("compact_after = '0s'", "compact = 'off'");
    let here = Here::start(&off);
    let client = here.client();
    push(&client, 0, 300_000);
    let notes = here.daemon().reload(&Config::parse(&small("")).unwrap());
    assert!(notes.unwrap().concat().contains("[log] has changed"));
    let dir = here.stop();
    assert_eq!(column_files(dir.path()), 0);
}
