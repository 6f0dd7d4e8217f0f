//! A running writer, and readers beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::machine::Machine;
use super::simulated::{Fault, Kind, Op, Rule, loom, shared_memory};
use super::*;
use crate::log::sync::{Mutex, locked};
use crate::types::Timestamp;

/// Appends random amounts and publishes now and then, until the record log has recycled `blocks` blocks.
fn write_blocks(logs: &mut Logs, blocks: u64, seed: u64) {
    let mut random = Random(seed);
    while logs.end(LogKind::Records).0 < blocks * BLOCK {
        for log in LogKind::ALL {
            append(logs, log, 8 * random.below(1200) as usize);
        }
        if random.below(3) == 0 {
            logs.publish();
        }
    }
    logs.publish();
}

// case Crash: at a block switch
#[test]
fn published_bytes_read_back_across_many_recycles() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    let reader = scene.reader();
    for round in 0..10 {
        write_blocks(&mut logs, 5 * (round + 1), round);
        let tails = check_all(&reader);
        assert_eq!(tails.tail, PerLog::new(|log| logs.end(log)));
        assert!(tails.live);
    }
    assert!(reader.daemon().unwrap().logs.records.head > Address(40 * BLOCK));
}

// case Crash: in mid-payload
#[test]
fn nothing_is_visible_before_it_is_published() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    let reader = scene.reader();
    append_each(&mut logs, [800, 160, 48]);
    assert_eq!(reader.tails().unwrap().tail, PerLog::<Address>::default());
    logs.publish();
    assert_eq!(
        reader.tails().unwrap().tail,
        [Address(800), Address(160), Address(48)].into()
    );
}

// G6
#[test]
fn readers_beside_the_writer_find_every_byte_whole_and_tails_that_only_grow() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::Interval(Duration::from_millis(20)));
    let stop = AtomicBool::new(false);
    let rounds: Vec<usize> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (scene, stop) = (&scene, &stop);
                scope.spawn(move || {
                    // This reader is like one in another process.
                    let reader = scene.reader();
                    let (mut random, mut before, mut rounds) =
                        (Random(seed), PerLog::<Address>::default(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        let tails = reader.tails().unwrap();
                        assert!(
                            tails
                                .tail
                                .iter()
                                .zip(before)
                                .all(|(now, before)| *now >= before)
                        );
                        before = tails.tail;
                        for (log, tail) in LogKind::ALL.into_iter().zip(tails.tail) {
                            // Most reads are around the head, where blocks are reused under the reader.
                            let from = tail.0.saturating_sub(8 * random.below(3 * BLOCK / 8));
                            check_range(&reader, log, Address(from), tail);
                        }
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        write_blocks(&mut logs, 400, 99);
        stop.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect()
    });
    assert!(rounds.iter().all(|rounds| *rounds > 0));
    check_all(&scene.reader());
    logs.close().unwrap();
}

#[test]
fn an_append_longer_than_both_blocks_is_taken_in_pieces() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::Batch);
    let bytes = 5 * BLOCK as usize + 4096;
    append_each(&mut logs, [bytes, bytes, bytes]);
    logs.sync().unwrap();
    check_all(&scene.reader());
}

// G2
#[test]
fn published_bytes_become_durable_by_themselves_within_the_interval() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::Interval(Duration::from_millis(5)));
    append_each(&mut logs, [808, 168, 48]);
    logs.publish();
    wait_until("durable is the tail", || {
        LogKind::ALL
            .iter()
            .all(|&log| logs.durable(log) == logs.tail(log))
    });
}

// G3
#[test]
fn with_batch_durability_a_block_is_reused_only_when_it_is_durable() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::Batch);
    let reader = scene.reader();
    for _ in 0..100 {
        append(&mut logs, LogKind::Records, 8192);
        logs.publish();
        let records = reader.daemon().unwrap().logs.records;
        assert!(records.head <= records.durable, "{records:?}");
    }
}

#[test]
fn addresses_that_no_log_has_are_errors() {
    let scene = Scene::new();
    let mut logs = scene.begun();
    logs.publish();
    let reader = scene.reader();
    reader.tails().unwrap();
    for address in [u64::MAX, u64::MAX - 7, 1 << 62, (1 << 62) - 8] {
        let error = reader.read(LogKind::Chunks, Address(address), &mut [0; 8]);
        assert!(matches!(error, Err(crate::Error::PastTail { .. })));
    }
    // There are bytes beyond the tail, but they do not verify.
    reader
        .read(LogKind::Chunks, Address(1 << 61), &mut [0; 8])
        .unwrap();
    logs.close().unwrap();
    reader.tails().unwrap();
    assert!(
        reader
            .read(LogKind::Chunks, Address(1 << 61), &mut [0; 8])
            .is_err()
    );
}

#[test]
fn the_daemons_words_reach_readers() {
    let scene = Scene::new();
    let logs = scene.create(Durability::None);
    logs.heartbeat(Timestamp(123_456), -789);
    let words = scene.reader().daemon().unwrap();
    assert!(words.alive && !words.stopping);
    assert_eq!(
        (words.heartbeat, words.clock_offset_ns),
        (Timestamp(123_456), -789)
    );
    drop(logs);
    assert!(!scene.reader().daemon().unwrap().alive);
}

#[test]
fn staging_goes_to_the_directory_where_its_place_is_absent() {
    let scene = Scene::new();
    let options = LogOptions {
        staging: Some(scene.root.path().join("nowhere")),
        ..scene.options.log.clone()
    };
    let mut logs = Opening::open(&scene.dir(), &options)
        .unwrap()
        .begin_at(Address(0), Address(0), Address(0), b"")
        .unwrap();
    append_each(&mut logs, [808, 168, 48]);
    logs.publish();
    check_all(&scene.reader());
    // The directory may move, because the note names staging relative to it.
    let moved = scene.root.path().join("moved");
    std::fs::rename(scene.dir(), &moved).unwrap();
    check_all(&LogReader::open(&moved).unwrap());
}

// G13
#[test]
fn staging_has_all_of_its_memory_from_the_start() {
    use std::os::unix::fs::MetadataExt;
    let scene = Scene::new();
    let logs = scene.create(Durability::None);
    let staging = std::fs::metadata(scene.staging_files().remove(0)).unwrap();
    // A hole in a mapped file is a signal if the file system has become full.
    assert_eq!(staging.len(), logs.staging_bytes());
    assert!(staging.blocks() * 512 >= staging.len(), "{staging:?}");
}

// G5
#[test]
fn no_view_begins_above_its_end_while_retention_runs() {
    for at in 0..8 {
        let machine = Machine::new();
        let logs = Arc::new(Mutex::new(machine.start(Durability::None)));
        append_each(&mut locked(&logs), [808, 168, 48]);
        locked(&logs).publish();
        let reader = machine.reader();
        reader.tails().unwrap();
        // Everything is given up between two words that the reader loads.
        let (writer, reads) = (Arc::clone(&logs), AtomicU64::new(0));
        machine.disk.rule(Rule::always(Fault::Lies, move |op| {
            let is_word = op.kind == Kind::Read && op.path.starts_with(shared_memory());
            if is_word && reads.fetch_add(1, Ordering::Relaxed) == at {
                let mut logs = locked(&writer);
                append_each(&mut logs, [808, 168, 48]);
                logs.publish();
                let ends = PerLog::new(|log| logs.end(log));
                logs.evict(ends);
            }
            false
        }));
        let tails = reader.tails().unwrap();
        machine.disk.obey();
        for log in LogKind::ALL {
            assert!(
                tails.begin[log] <= tails.tail[log],
                "before word {at}, the {log}: {tails:?}"
            );
        }
    }
}

// case Concurrency: retention under a long scan
#[test]
fn a_reader_of_an_ended_epoch_says_evicted_for_bytes_that_a_later_writer_gave_up() {
    for is_clean in [true, false] {
        let scene = Scene::new();
        let mut logs = scene.create(Durability::None);
        write_blocks(&mut logs, 4 * SEGMENT / BLOCK, 5);
        logs.sync().unwrap();
        let early = scene.reader();
        if is_clean {
            logs.close().unwrap();
            early.tails().unwrap();
        } else {
            early.tails().unwrap();
            logs.close().unwrap();
        }
        let mut logs = resume(scene.open());
        logs.evict([Address(2 * SEGMENT), Address(0), Address(0)].into());
        let first = scene.segment(LogKind::Records, 0);
        wait_until("the evicted segment is gone", || !first.exists());
        let error = early
            .read(LogKind::Records, Address(4096), &mut [0; 8])
            .unwrap_err();
        assert!(
            matches!(error, crate::Error::Evicted { begin: Address(b), .. } if b == 2 * SEGMENT),
            "{error}"
        );
    }
}

/// A unit is written when it is whole, published or not. What a killed writer did not publish of it is cut off by the next start.
// case Concurrency: restart under an open reader
#[test]
fn a_reader_of_a_killed_writer_reads_what_was_published_while_the_next_one_begins() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append(&mut logs, LogKind::Records, 808);
    logs.publish();
    append(&mut logs, LogKind::Records, BLOCK as usize);
    wait_until("the unit is written", || {
        logs.flushed(LogKind::Records) == Address(BLOCK)
    });
    let reader = machine.reader();
    assert_eq!(reader.tails().unwrap().tail.records, Address(808));
    drop(logs);
    let logs = resume(machine.open());
    // It does not look at what there is now.
    check_range(&reader, LogKind::Records, Address(0), Address(808));
    let mut held = HeldUnit::default();
    let unit = reader.column_unit(Address(0), UnitWanted::All, &mut held);
    assert!(unit.unwrap().is_none(), "no unit holds the chunk now");
    drop(logs);
}

/// The area of the tail that a slot names is begun again once a later slot does not need it.
// case Concurrency: restart under an open reader
#[test]
fn a_reader_that_is_slow_between_a_slot_and_the_tail_finds_what_is_there_then() {
    let machine = Machine::new();
    let mut logs = machine.start(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.close().unwrap();
    let reader = machine.reader();
    let (met, slow) = std::sync::mpsc::channel();
    let is_tail = move |op: &Op| {
        let is_tail = op.kind == Kind::Open && op.path == loom().join("tail");
        if is_tail {
            met.send(()).unwrap();
        }
        is_tail
    };
    let rule = Rule::once(Fault::Takes(Duration::from_secs(2)), is_tail);
    machine.disk.rule(rule);
    let reading = std::thread::spawn(move || {
        let tails = reader.tails().unwrap();
        check_range(&reader, LogKind::Records, Address(0), Address(808));
        tails
    });
    slow.recv().unwrap();
    let since = Instant::now();
    let mut logs = resume(machine.open());
    for _ in 0..4 {
        append(&mut logs, LogKind::Records, BLOCK as usize - 88);
        logs.sync().unwrap();
    }
    assert!(
        since.elapsed() < Duration::from_secs(1),
        "the reader waited for too short a time"
    );
    assert!(reading.join().unwrap().live);
    drop(logs);
}

// case Concurrency: retention under a long scan
#[test]
fn two_readers_beside_retention_read_every_byte_whole_or_are_told_that_it_is_evicted() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::Interval(Duration::from_millis(5)));
    let stop = AtomicBool::new(false);
    let seen: Vec<[u64; 2]> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|seed| {
                let (scene, stop) = (&scene, &stop);
                scope.spawn(move || {
                    let reader = scene.reader();
                    let (mut random, mut seen) = (Random(seed), [0; 2]);
                    while !stop.load(Ordering::Relaxed) {
                        let tails = reader.tails().unwrap();
                        let (begin, tail) = (tails.begin.records, tails.tail.records);
                        // The records that the writer overwrites next.
                        let mut at = begin.align_up(8);
                        let to = tail.min(begin + 2 * SEGMENT);
                        while at < to {
                            let most = (to.0 - at.0).min(8 * random.below(9000) + 8);
                            let mut buffer = vec![0; most as usize];
                            match reader.read(LogKind::Records, at, &mut buffer) {
                                Ok(_) => assert_whole(LogKind::Records, at, &buffer),
                                Err(crate::Error::Evicted { begin, .. }) => {
                                    assert!(at < begin);
                                    seen[1] += 1;
                                    break;
                                }
                                Err(error) => panic!("at {at}: {error}"),
                            }
                            at += most;
                            seen[0] += 1;
                        }
                    }
                    seen
                })
            })
            .collect();
        for round in 0..200u64 {
            append(&mut logs, LogKind::Records, SEGMENT as usize / 2);
            logs.publish();
            let begin = (round * SEGMENT / 2).saturating_sub(4 * SEGMENT);
            logs.evict([Address(begin), Address(0), Address(0)].into());
        }
        stop.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect()
    });
    assert!(seen.iter().all(|[read, _]| *read > 100), "{seen:?}");
    logs.close().unwrap();
    check_all(&scene.reader());
}

#[test]
fn a_reader_that_opened_a_segment_under_way_reads_what_is_appended_to_it_and_to_the_next() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    let reader = scene.reader();
    for _ in 0..3 * SEGMENT / BLOCK {
        append(&mut logs, LogKind::Records, BLOCK as usize);
        logs.publish();
        let end = logs.end(LogKind::Records);
        wait_until("the unit is written", || {
            logs.flushed(LogKind::Records) == end
        });
        assert_eq!(reader.tails().unwrap().tail.records, end);
        let mut held = HeldUnit::default();
        for at in (0..end.0).step_by(CHUNK as usize) {
            let mut chunk = vec![0; CHUNK as usize];
            let unit = reader.column_unit(Address(at), UnitWanted::All, &mut held);
            let (unit, nth) = unit.unwrap().expect("a unit holds the chunk");
            unit.chunk(nth, &mut chunk).unwrap();
            assert_whole(LogKind::Records, Address(at), &chunk);
        }
    }
}
