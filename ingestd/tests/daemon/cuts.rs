//! Cuts over two daemons: no record without those that were published before it was pushed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loom_engine::TimeRange;
use loom_engine::query::{Cut, Directory, Poll, RecordView, raw_scan};

use super::support::{NUMBERS, There, connect, push, stop};

const PAIRS: u64 = 1_000_000;
/// So many pairs wait for one another: the second directory's records are pushed when the first one's are published.
const TOGETHER: u64 = 20;

/// The number of the newest record below a position; 0 where there is none.
fn newest(directory: &Arc<Directory>, position: u64) -> u64 {
    let snapshot = directory.snapshot_at(position).unwrap();
    let source = snapshot.source("numbers").unwrap().id;
    let mut newest = 0;
    let first = |record: RecordView<'_>| {
        newest = u64::from_le_bytes(record.payload.try_into().unwrap());
        ControlFlow::Break(())
    };
    raw_scan(&snapshot, source, TimeRange::ALL, &Poll::never(), first).unwrap();
    newest
}

// case Concurrency: a cut of several directories
#[test]
fn no_cut_holds_a_record_without_those_that_it_follows_from() {
    let place = tempfile::tempdir().unwrap();
    let dirs = ["a.loom", "b.loom"].map(|name| place.path().join(name));
    let daemons = dirs
        .each_ref()
        .map(|dir| There::start(dir, NUMBERS).unwrap());
    let is_done = AtomicBool::new(false);
    let (mut whole, mut apart, mut widest) = (0u64, 0u64, Duration::ZERO);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let clients = dirs.each_ref().map(|dir| connect(dir));
            for first in (1..=PAIRS).step_by(TOGETHER as usize) {
                for (client, source) in &clients {
                    push(client, *source, first..first + TOGETHER);
                }
            }
            is_done.store(true, Ordering::SeqCst);
        });
        // Either order of the look.
        let mut directories = dirs.each_ref().map(|dir| Directory::open(dir).unwrap());
        let mut in_order = true;
        while !is_done.load(Ordering::SeqCst) {
            directories.reverse();
            in_order = !in_order;
            let cut = Cut::take(&directories).unwrap();
            if !cut.apart.is_zero() {
                (apart, widest) = (apart + 1, widest.max(cut.apart));
                continue;
            }
            whole += 1;
            let [one, other] =
                [0, 1].map(|place| newest(&directories[place], cut.positions[place].0));
            let [a, b] = if in_order { [one, other] } else { [other, one] };
            assert!(
                b <= a,
                "the cut has {b} of the second directory, {a} of the first"
            );
        }
    });
    let directories = dirs.each_ref().map(|dir| Directory::open(dir).unwrap());
    let cut = Cut::take(&directories).unwrap();
    for (directory, position) in directories.iter().zip(&cut.positions) {
        assert_eq!(newest(directory, position.0), PAIRS);
    }
    daemons.into_iter().for_each(stop);
    eprintln!("{whole} cuts of one moment, {apart} that took up to {widest:?}");
    let is_mostly_whole = whole > 1000 && whole > 10 * apart;
    assert!(is_mostly_whole, "{whole} cuts of one moment, {apart} not");
}

// case Concurrency: a cut of several directories
#[test]
fn directories_without_a_daemon_are_cut_where_they_ended() {
    let place = tempfile::tempdir().unwrap();
    let dirs = ["a.loom", "b.loom"].map(|name| place.path().join(name));
    for dir in &dirs {
        let there = There::start(dir, "").unwrap();
        let (client, source) = connect(dir);
        push(&client, source, [7]);
        stop(there);
    }
    let directories = dirs.each_ref().map(|dir| Directory::open(dir).unwrap());
    let before = Cut::take(&directories).unwrap();
    assert_eq!(before.apart, Duration::ZERO);
    // A daemon that begins is seen, by the directories that are open.
    let there = There::start(&dirs[1], "").unwrap();
    let (client, source) = connect(&dirs[1]);
    push(&client, source, [8]);
    let after = Cut::take(&directories).unwrap();
    assert_eq!(after.positions[0], before.positions[0]);
    assert!(after.positions[1] > before.positions[1]);
    drop(client);
    stop(there);
}
