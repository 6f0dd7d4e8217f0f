//! Writers that are killed, with their staging left or lost. `Logs` dropped without `close` leaves what a kill leaves.

use super::*;
use crate::error::Error;
use crate::format::verify_chunk;
use crate::log::files::mirrored::Mirrored;
use crate::log::staging::control;
use crate::log::staging::note::StagingNote;
use crate::log::storage::OsStorage;

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_damaged_note_costs_nothing_that_was_published() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [8 * 1001, 8 * 101, 48 * 9]);
    logs.publish();
    let published = PerLog::new(|log| logs.end(log));
    drop(logs);
    let [note, copy] = ["staging", "staging.copy"].map(|name| scene.dir().join(name));
    let sound = std::fs::read(&note).unwrap();
    for (hit, other) in [(&note, &copy), (&copy, &note)] {
        for at in (0..sound.len()).step_by(7) {
            let mut flipped = sound.clone();
            flipped[at] ^= 2;
            std::fs::write(hit, &flipped).unwrap();
            assert_eq!(check_all(&scene.reader()).tail, published, "byte {at}");
            let opening = scene.open();
            assert_eq!(opening.how(), Recovered::Salvaged, "byte {at}");
            assert_eq!(PerLog::new(|log| opening.end(log)), published);
        }
        std::fs::write(hit, "").unwrap();
        assert_eq!(std::fs::read(other).unwrap(), sound);
        let told = |path: &Path| {
            let damaged = scene.reader().damaged_files();
            damaged.iter().any(|(damaged, _)| damaged == path)
        };
        assert!(told(hit) && !told(other));
        std::fs::write(hit, &sound).unwrap();
    }
    std::fs::write(&copy, "{").unwrap();
    let logs = resume(scene.open());
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&note).unwrap());
    logs.close().unwrap();
    assert!(!note.exists() && !copy.exists());
}

/// As a reboot: the file may be there, but it is not what was shared then.
fn change_boot(scene: &Scene) {
    let mut note = StagingNote::load(&OsStorage::default(), &scene.dir())
        .unwrap()
        .unwrap();
    note.boot_id = "another boot".to_owned();
    note.store(&OsStorage::default(), &scene.dir()).unwrap();
}

// G1
// case Crash: in mid-payload
// case Crash: published, not answered
// case Crash: at a block switch
#[test]
fn what_was_published_survives_a_kill_at_any_fill() {
    let mut random = Random(11);
    for round in 0..20 {
        let scene = Scene::new();
        let mut logs = scene.create(if round % 2 == 0 {
            Durability::None
        } else {
            Durability::Interval(Duration::from_millis(1))
        });
        let mut published = PerLog::<Address>::default();
        for _ in 0..random.below(60) {
            append_each(
                &mut logs,
                [
                    8 * random.below(2000) as usize,
                    8 * random.below(1000) as usize,
                    48 * random.below(30) as usize,
                ],
            );
            if random.below(2) == 0 {
                logs.publish();
                published = PerLog::new(|log| logs.end(log));
            }
        }
        drop(logs);
        // Readers see it before anybody recovers it, and not as live.
        let reader = scene.reader();
        let tails = check_all(&reader);
        assert_eq!(
            (tails.tail, tails.live),
            (published, false),
            "round {round}"
        );

        for _ in 0..2 {
            // Recovery may itself be killed, and is repeated.
            let opening = scene.open();
            assert_eq!(opening.how(), Recovered::Salvaged);
            assert_eq!(PerLog::new(|log| opening.end(log)), published);
        }
        let mut logs = resume(scene.open());
        let PerLog {
            records,
            chunks,
            times,
        } = reader.tails().unwrap().tail;
        assert_eq!(
            (records, chunks, times),
            (
                published.records.align_up(CHUNK),
                published.chunks,
                published.times
            )
        );
        check_range(&reader, LogKind::Records, Address(0), published.records);
        let mut chunk = vec![0; CHUNK as usize];
        for at in (0..records.0 / CHUNK).map(|n| Address(n * CHUNK)) {
            assert_eq!(
                reader.read(LogKind::Records, at, &mut chunk).unwrap(),
                Origin::Segment
            );
            verify_chunk(&reader.meta().uuid, at, &chunk).unwrap();
        }
        append_each(&mut logs, [BLOCK as usize, 800, 48]);
        logs.publish();
        let records_now = reader.tails().unwrap().tail.records;
        check_range(&reader, LogKind::Records, records, records_now);
        check_range(&reader, LogKind::Chunks, Address(0), chunks + 800);
        assert_eq!(scene.staging_files().len(), 1);
    }
}

#[test]
fn a_kill_right_after_a_start_loses_nothing() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [4904, 168, 48]);
    logs.publish();
    drop(logs);
    for _ in 0..5 {
        drop(resume(scene.open()));
    }
    let opening = scene.open();
    assert_eq!(LogKind::ALL.map(|log| opening.end(log).0), [8192, 168, 48]);
    let mut back = vec![0; 4904];
    opening
        .read(LogKind::Records, Address(0), &mut back)
        .unwrap();
    assert_whole(LogKind::Records, Address(0), &back);
}

// G2
#[test]
fn without_staging_the_durable_part_and_the_run_of_whole_chunks_above_it_are_kept() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [5 * CHUNK as usize + 808, 168, 48]);
    logs.sync().unwrap();
    // Flushed, not synced: a crash of the host would keep any part of it; a lost staging file keeps all.
    append_each(&mut logs, [4 * BLOCK as usize, 168, 48]);
    logs.publish();
    wait_until("blocks are flushed", || {
        logs.flushed(LogKind::Records).0 >= 3 * BLOCK
    });
    drop(logs);
    scene.lose_staging();

    let reader = scene.reader();
    let tails = check_all(&reader);
    assert!(tails.tail.records.0 >= 3 * BLOCK, "{tails:?}");
    assert_eq!(
        (tails.tail.chunks, tails.tail.times, tails.live),
        (Address(168), Address(48), false)
    );
    let opening = scene.open();
    assert_eq!(opening.how(), Recovered::StagingLost);
    assert_eq!(PerLog::new(|log| opening.end(log)), tails.tail);
    assert!(opening.resume().0.is_multiple_of(SEGMENT) && opening.resume() > tails.tail.records);
    let resumed = opening.resume();
    let mut logs = resume(opening);
    append_each(&mut logs, [808, 168, 48]);
    logs.publish();
    check_range(&reader, LogKind::Records, Address(0), tails.tail.records);
    assert_eq!(reader.tails().unwrap().tail.records, resumed + 808);
    check_range(&reader, LogKind::Records, resumed, resumed + 808);
}

// case Crash: while a segment is created
#[test]
fn what_was_allocated_ahead_and_never_written_does_not_stay() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append(&mut logs, LogKind::Records, 2 * BLOCK as usize + 808);
    logs.sync().unwrap();
    let ahead = scene.segment(LogKind::Records, SEGMENT);
    wait_until("a segment is allocated ahead", || ahead.exists());
    drop(logs);
    scene.lose_staging();
    let opening = scene.open();
    assert_eq!(opening.resume(), Address(2 * SEGMENT));
    resume(opening).close().unwrap();
    assert!(!ahead.exists() && scene.segment(LogKind::Records, 0).exists());
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.resume()),
        (Recovered::Clean, Address(2 * SEGMENT))
    );
}

// case Crash: in a start, or in a stop, at any operation
#[test]
fn staging_that_is_lost_before_its_epoch_began_held_nothing() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.close().unwrap();
    let durable = scene.dir().join("durable");
    let ended = std::fs::read(&durable).unwrap();
    drop(resume(scene.open()));
    let begun = std::fs::read(&durable).unwrap();
    scene.lose_staging();
    // As it was when the new staging was made and no slot named it.
    std::fs::write(&durable, &ended).unwrap();
    let tails = check_all(&scene.reader()).tail;
    assert_eq!(tails, [Address(808), Address(168), Address(48)].into());
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.resume()),
        (Recovered::Clean, Address(CHUNK))
    );
    drop(opening);
    // From the first slot on records may have been published, and one slot that is damaged hides that no more than none.
    for slot in [0, 4096] {
        let mut bytes = begun.clone();
        bytes[slot + 60] ^= 1;
        std::fs::write(&durable, &bytes).unwrap();
        let opening = scene.open();
        assert_eq!(
            (opening.how(), opening.resume()),
            (Recovered::StagingLost, Address(SEGMENT))
        );
    }
}

// case Crash: stale staging
#[test]
fn staging_of_another_boot_is_never_adopted() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.sync().unwrap();
    append_each(&mut logs, [80, 80, 48]);
    logs.publish();
    drop(logs);
    change_boot(&scene);
    assert_eq!(
        check_all(&scene.reader()).tail,
        [Address(808), Address(168), Address(48)].into()
    );
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.end(LogKind::Records)),
        (Recovered::StagingLost, Address(808))
    );
    let logs = resume(opening);
    let mut chunk = vec![0; CHUNK as usize];
    let reader = scene.reader();
    reader.tails().unwrap();
    reader
        .read(LogKind::Records, Address(0), &mut chunk)
        .unwrap();
    verify_chunk(&reader.meta().uuid, Address(0), &chunk).unwrap();
    assert_whole(LogKind::Records, Address(0), &chunk[..808]);
    assert!(chunk[808..4088].iter().all(|byte| *byte == 0));
    logs.close().unwrap();
}

// case Crash: stale staging
#[test]
fn a_copy_never_adopts_the_staging_of_the_original() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.sync().unwrap();
    append_each(&mut logs, [80, 80, 48]);
    logs.publish();
    let copy = scene.root.path().join("copy");
    copy_dir(&scene.dir(), &copy);
    let reader = LogReader::open(&copy).unwrap();
    assert_eq!(
        check_all(&reader).tail,
        [Address(808), Address(168), Address(48)].into()
    );
    let opening = Opening::open(&copy, &scene.options()).unwrap();
    assert_eq!(opening.how(), Recovered::StagingLost);
    resume(opening).close().unwrap();
    assert_eq!(check_all(&scene.reader()).tail.records, Address(888));
    append(&mut logs, LogKind::Records, 8);
    logs.close().unwrap();
}

#[test]
fn a_torn_chunk_above_the_durable_tail_ends_the_log() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append(&mut logs, LogKind::Records, 2 * CHUNK as usize);
    logs.sync().unwrap();
    append(&mut logs, LogKind::Records, 3 * BLOCK as usize);
    logs.publish();
    wait_until("blocks are flushed", || {
        logs.flushed(LogKind::Records).0 >= 2 * BLOCK
    });
    drop(logs);
    scene.lose_staging();
    let path = scene.segment(LogKind::Records, 0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5 * CHUNK as usize + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let opening = scene.open();
    assert_eq!(opening.end(LogKind::Records), Address(5 * CHUNK));
    drop(opening);
    assert_eq!(check_all(&scene.reader()).tail.records, Address(5 * CHUNK));
}

#[test]
fn a_damaged_chunk_below_the_durable_tail_is_kept_and_hides_nothing() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append(&mut logs, LogKind::Records, 20 * CHUNK as usize + 808);
    logs.sync().unwrap();
    drop(logs);
    scene.lose_staging();
    let path = scene.segment(LogKind::Records, 0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5 * CHUNK as usize + 100] ^= 1;
    // The last chunk as well: recovery must not make it verify.
    bytes[20 * CHUNK as usize + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let opening = scene.open();
    assert_eq!(opening.end(LogKind::Records), Address(20 * CHUNK + 808));
    drop(resume(opening));
    let reader = scene.reader();
    reader.tails().unwrap();
    let mut chunk = vec![0; CHUNK as usize];
    for n in 0..21 {
        reader
            .read(LogKind::Records, Address(n * CHUNK), &mut chunk)
            .unwrap();
        let sound = verify_chunk(&reader.meta().uuid, Address(n * CHUNK), &chunk).is_ok();
        assert_eq!(sound, n != 5 && n != 20, "chunk {n}");
    }
}

#[test]
fn one_damaged_slot_leaves_the_one_before() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [20 * CHUNK as usize, 168, 48]);
    logs.close().unwrap();
    let path = scene.dir().join("durable");
    let whole = std::fs::read(&path).unwrap();
    for slot in [0, 4096] {
        let mut bytes = whole.clone();
        bytes[slot + 60] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(check_all(&scene.reader()).tail.records, Address(20 * CHUNK));
    }
    std::fs::write(&path, vec![0; 8192]).unwrap();
    assert_eq!(
        check_all(&scene.reader()).tail,
        [Address(20 * CHUNK), Address(0), Address(0)].into()
    );
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.resume()),
        (Recovered::StagingLost, Address(SEGMENT))
    );
}

#[test]
fn staging_that_cannot_be_opened_while_the_writer_lives_is_an_error() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.sync().unwrap();
    scene.lose_staging();
    let error = scene.reader().tails().unwrap_err();
    assert!(matches!(error, Error::Staging { .. }), "{error}");
    drop(logs);
    assert_eq!(check_all(&scene.reader()).tail.records, Address(808));
}

// case Corruption: truncation
#[test]
fn a_file_that_is_cut_short_gives_an_error_that_names_it() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [2 * CHUNK as usize, 168, 48]);
    logs.publish();
    let reader = scene.reader();
    reader.tails().unwrap();
    // The mapping of this process would fault on a file of no length; the end of it is in no use here.
    let staging = scene.staging_files().remove(0);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&staging)
        .unwrap();
    let bytes = file.metadata().unwrap().len();
    logs.sync().unwrap();
    drop(logs);
    file.set_len(4096 + CHUNK).unwrap();
    let error = reader
        .read(LogKind::Records, Address(CHUNK), &mut [0; 8])
        .unwrap_err();
    assert!(
        matches!(&error, Error::Staging { path, .. } if *path == staging),
        "{error}"
    );
    assert!(matches!(scene.reader().tails(), Err(Error::Staging { .. })));
    file.set_len(bytes).unwrap();

    resume(scene.open()).close().unwrap();
    let segment = scene.segment(LogKind::Records, 0);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap()
        .set_len(CHUNK)
        .unwrap();
    let reader = scene.reader();
    assert_eq!(reader.tails().unwrap().tail.records, Address(2 * CHUNK));
    let error = reader
        .read(LogKind::Records, Address(CHUNK), &mut [0; 8])
        .unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { path, address: Address(CHUNK), .. } if *path == segment),
        "{error}"
    );
    reader
        .read(LogKind::Records, Address(0), &mut [0; 8])
        .unwrap();
}

#[test]
fn readers_see_tails_that_only_grow_while_writers_come_and_go() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let scene = Scene::new();
    scene.create(Durability::None).close().unwrap();
    let stop = AtomicBool::new(false);
    let shared = scene.reader();
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (scene, stop, reader) = (&scene, &stop, &shared);
            scope.spawn(move || {
                let mut random = Random(seed);
                let mut before = PerLog::<Address>::default();
                while !stop.load(Ordering::Relaxed) {
                    // One that stays open and is shared, and one that comes new.
                    let fresh = scene.reader();
                    let reader = if random.below(4) == 0 { &fresh } else { reader };
                    let tails = reader.tails().unwrap().tail;
                    assert!(
                        tails.iter().zip(before).all(|(now, before)| *now >= before),
                        "{tails:?} after {before:?}"
                    );
                    before = tails;
                    for (log, tail) in LogKind::ALL.into_iter().zip(tails) {
                        let from = tail.0.saturating_sub(8 * random.below(3 * BLOCK / 8));
                        check_range(reader, log, Address(from), tail);
                    }
                }
            });
        }
        let mut random = Random(7);
        for _ in 0..30 {
            let mut logs = resume(scene.open());
            for _ in 0..random.below(30) {
                append_each(
                    &mut logs,
                    [
                        CHUNK as usize * random.below(6) as usize,
                        8 * random.below(900) as usize,
                        48,
                    ],
                );
                logs.publish();
            }
            if random.below(2) == 0 {
                logs.close().unwrap()
            } else {
                drop(logs)
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

// case Corruption: a flipped byte
#[test]
fn no_flipped_byte_of_the_small_files_makes_a_panic_or_other_bytes() {
    for ending in ["killed", "clean"] {
        let scene = Scene::new();
        let mut logs = scene.create(Durability::None);
        append_each(&mut logs, [2 * CHUNK as usize + 808, 168, 48]);
        logs.sync().unwrap();
        append_each(&mut logs, [CHUNK as usize, 800, 480]);
        logs.publish();
        if ending == "clean" {
            logs.close().unwrap()
        } else {
            drop(logs)
        }
        let mut files = vec![scene.dir().join("loom.json"), scene.dir().join("durable")];
        if ending == "killed" {
            files.push(scene.dir().join("staging"));
            files.extend(scene.staging_files());
        }
        for path in files {
            let whole = std::fs::read(&path).unwrap();
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            let flip = |at: usize, bits: u8| {
                std::os::unix::fs::FileExt::write_all_at(&file, &[whole[at] ^ bits], at as u64)
                    .unwrap()
            };
            for at in (0..whole.len().min(4096)).filter(|at| *at < 256 || whole[*at] != 0) {
                for bits in [1, 0x80] {
                    flip(at, bits);
                    // What is read at all is what was written; of which directory, and up to where, a flipped byte may well change.
                    if let Ok(reader) = LogReader::open(&scene.dir())
                        && let Ok(tails) = reader.tails()
                        && let Ok(words) = reader.daemon()
                    {
                        assert!(!words.alive);
                        let mut bytes = vec![0; 4096];
                        for (log, tail) in LogKind::ALL.into_iter().zip(tails.tail) {
                            let _ =
                                reader.read(log, Address(tail.0.saturating_sub(4096)), &mut bytes);
                        }
                    }
                }
                flip(at, 0);
            }
        }
        let tails = check_all(&scene.reader());
        assert_eq!(
            tails.tail,
            [Address(3 * CHUNK + 808), Address(968), Address(528)].into()
        );
    }
}

// case Corruption: no file in a segment's place
#[test]
fn what_is_no_file_in_a_segments_place_is_an_error_and_no_wait() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [2 * SEGMENT as usize, 168, 48]);
    logs.close().unwrap();
    let segment = scene.segment(LogKind::Records, SEGMENT);
    let refused = || {
        let reader = scene.reader();
        let tails = reader.tails().unwrap();
        assert_eq!(tails.tail.records, Address(2 * SEGMENT));
        let error = reader
            .read(LogKind::Records, Address(SEGMENT), &mut [0; 8])
            .unwrap_err();
        assert!(error.to_string().contains("00262144."), "{error}");
        check_range(&reader, LogKind::Records, Address(0), Address(SEGMENT));
    };
    std::fs::remove_file(&segment).unwrap();
    refused();
    std::fs::create_dir(&segment).unwrap();
    refused();
    std::fs::remove_dir(&segment).unwrap();
    std::os::unix::fs::symlink(scene.segment(LogKind::Records, 0), &segment).unwrap();
    refused();
    std::fs::remove_file(&segment).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &segment, rustix::fs::Mode::RUSR).unwrap();
    refused();
}

// case Concurrency: restart under an open reader
#[test]
fn a_reader_that_stays_open_follows_from_epoch_to_epoch() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    let reader = scene.reader();
    let mut end = Address(0);
    for round in 0..6 {
        append_each(&mut logs, [BLOCK as usize, 1 << 17, 4800]);
        logs.publish();
        let tails = check_all(&reader);
        assert!(tails.live && tails.tail.records > end, "round {round}");
        end = tails.tail.records;
        if round % 2 == 0 {
            drop(logs)
        } else {
            logs.close().unwrap()
        }
        assert_eq!(check_all(&reader).tail, tails.tail);
        logs = resume(scene.open());
    }
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_durable_mark_above_the_tail_does_not_refuse_the_start() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.publish();
    drop(logs);
    // As if the writer had died between what it says to the flusher and what it says in staging.
    let durable = Address(888);
    let mut pair = durable.0.to_le_bytes().to_vec();
    pair.extend((!durable.0).to_le_bytes());
    let staging = std::fs::File::options()
        .write(true)
        .open(scene.staging_files().remove(0))
        .unwrap();
    let at = control::word_offset(LogKind::Records, control::Word::Durable);
    std::os::unix::fs::FileExt::write_all_at(&staging, &pair, at).unwrap();
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.end(LogKind::Records)),
        (Recovered::Salvaged, Address(808))
    );
    drop(resume(opening));
    check_range(&scene.reader(), LogKind::Records, Address(0), Address(808));
}
