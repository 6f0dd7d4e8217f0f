//! What the daemon rewrites as columns while it records: what it reports, that every record stays, that limits go by what is on the disk.

use std::path::{Path, PathBuf};

use ingestd::client::Client;
use ingestd::daemon::DaemonStatus;
use loom_engine::SourceId;
use loom_engine::check::check;
use loom_engine::testkit::{is_columns, paths};
use loom_tests::command::eventually;

use super::support::{Here, NUMBERS, Place, SMALL, connect, numbers, push, stop};

/// Small files, which become columns as soon as they are full.
fn small(more: &str) -> String {
    format!("{SMALL}durability = '10ms'\ncompact_after = '0s'\n{more}{NUMBERS}")
}

/// Pushes the numbers of a round, 100,000 of them.
fn round(client: &Client, source: SourceId, round: u64) {
    push(client, source, round * 100_000..(round + 1) * 100_000);
}

/// The status, once so many segments are columns.
fn once_columns(client: &Client, segments: u64) -> DaemonStatus {
    eventually(|| {
        let status = DaemonStatus::from_json(&client.status().unwrap()).unwrap();
        (status.column_segments >= segments).then_some(status)
    })
}

fn column_files(dir: &Path) -> u64 {
    let files = paths(&dir.join("records"));
    files.iter().filter(|path| is_columns(path)).count() as u64
}

#[test]
fn full_files_become_columns_while_records_come_in() {
    let here = Here::start(&small(""));
    let (client, source) = connect(here.path());
    for part in 0..5 {
        let end = (part + 1) * 200_000;
        push(&client, source, end - 200_000..end);
        once_columns(&client, part + 1);
        assert!(numbers(here.path()).into_iter().eq(0..end));
    }
    let status = once_columns(&client, 10);
    assert_eq!(status.column_segments << 20, status.column_rows_bytes);
    let is_smaller = status.column_bytes * 2 < status.column_rows_bytes;
    assert!(is_smaller, "{status:?}");
    assert!(status.segment_bytes < status.records_end, "{status:?}");
    let dir = here.stop();
    assert!(column_files(dir.path()) >= 10);
    assert!(numbers(dir.path()).into_iter().eq(0..1_000_000));
    assert!(check(dir.path()).unwrap().is_sound());
}

#[test]
fn a_daemon_that_is_killed_while_it_compacts_goes_on() {
    let place = Place::new();
    let start = || place.start(&small(""));
    for part in 0..5 {
        let there = start();
        let (client, source) = connect(&place.dir);
        round(&client, source, part);
        // Somewhere between two of its segments.
        once_columns(&client, part);
        drop(there);
        assert!(numbers(&place.dir).into_iter().eq(0..(part + 1) * 100_000));
    }
    let there = start();
    once_columns(&there.client().unwrap(), 6);
    stop(there);
    assert!(numbers(&place.dir).into_iter().eq(0..500_000));
    let report = check(&place.dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let files = paths(&place.dir.join("records"));
    let is_draft = |path: &&PathBuf| path.extension().is_some_and(|it| it == "new");
    assert_eq!(files.iter().filter(is_draft).count(), 0);
}

#[test]
fn limits_go_by_what_columns_take() {
    let here = Here::start(&small("[retention]\nmax_bytes = '12MiB'\n"));
    let (client, source) = connect(here.path());
    // 16 MiB as rows; each part is columns before the next begins.
    for part in 0..10 {
        round(&client, source, part);
        once_columns(&client, part);
    }
    assert_eq!(here.daemon().status().unwrap().evicted_segments, 0);
    assert!(numbers(here.path()).into_iter().eq(0..1_000_000));
}

#[test]
fn files_stay_rows_where_the_configuration_says_so() {
    let off = small("").replace("compact_after = '0s'", "compact = 'off'");
    let here = Here::start(&off);
    let (client, source) = connect(here.path());
    push(&client, source, 0..300_000);
    let notes = here.reload(&small(""));
    assert!(notes.unwrap().concat().contains("[log] has changed"));
    let dir = here.stop();
    assert_eq!(column_files(dir.path()), 0);
}
