//! Writers that are killed, with their staging kept or lost. Dropping `Logs` without `close` has the effect of a kill.

use super::*;
use crate::error::Error;
use crate::format::{UNIT_HEADER_BYTES, verify_chunk};
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
        let is_listed = |path: &Path| {
            let damaged = scene.reader().damaged_files();
            damaged.iter().any(|(damaged, _)| damaged == path)
        };
        assert!(is_listed(hit) && !is_listed(other));
        std::fs::write(hit, &sound).unwrap();
    }
    std::fs::write(&copy, "{").unwrap();
    let logs = resume(scene.open());
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&note).unwrap());
    logs.close().unwrap();
    assert!(!note.exists() && !copy.exists());
}

/// Imitates a reboot: the file may exist, but it is not the memory of that time.
fn change_boot(scene: &Scene) {
    let mut note = StagingNote::load(&OsStorage::default(), &scene.dir())
        .unwrap()
        .unwrap();
    note.boot_id = "another boot".to_owned();
    note.store(&OsStorage::default(), &scene.dir()).unwrap();
}

// G2
#[test]
fn without_staging_the_durable_part_and_the_run_of_whole_chunks_above_it_are_kept() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [5 * CHUNK as usize + 808, 168, 48]);
    logs.sync().unwrap();
    // The bytes are flushed but not synced: a crash of the host would keep any part of them, and a lost staging file keeps all.
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
fn segments_that_were_allocated_ahead_and_never_written_do_not_stay() {
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
    let logs = scene.begun();
    logs.close().unwrap();
    let durable = scene.dir().join("durable");
    let ended = std::fs::read(&durable).unwrap();
    drop(resume(scene.open()));
    let begun = std::fs::read(&durable).unwrap();
    scene.lose_staging();
    // Restores the state when the new staging existed and no slot named it.
    std::fs::write(&durable, &ended).unwrap();
    let tails = check_all(&scene.reader()).tail;
    assert_eq!(tails, A_LITTLE.into());
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.resume()),
        (Recovered::Clean, Address(CHUNK))
    );
    drop(opening);
    // Records may have been published from the first slot on, and a damaged slot hides that no more than a missing one.
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
    let mut logs = scene.begun();
    logs.sync().unwrap();
    append_each(&mut logs, [80, 80, 48]);
    logs.publish();
    drop(logs);
    change_boot(&scene);
    assert_eq!(check_all(&scene.reader()).tail, A_LITTLE.into());
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
    let mut logs = scene.begun();
    logs.sync().unwrap();
    append_each(&mut logs, [80, 80, 48]);
    logs.publish();
    let copy = scene.root.path().join("copy");
    copy_dir(&scene.dir(), &copy);
    let reader = LogReader::open(&copy).unwrap();
    assert_eq!(check_all(&reader).tail, A_LITTLE.into());
    let opening = Opening::open(&copy, &scene.options.log).unwrap();
    assert_eq!(opening.how(), Recovered::StagingLost);
    resume(opening).close().unwrap();
    assert_eq!(check_all(&scene.reader()).tail.records, Address(888));
    append(&mut logs, LogKind::Records, 8);
    logs.close().unwrap();
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
    scene.change(&path, |bytes| {
        bytes[UNIT_HEADER_BYTES + 5 * CHUNK as usize + 100] ^= 1;
    });
    // This damages the last chunk as well: recovery must not make it verify.
    scene.change(&scene.dir().join("tail"), |bytes| {
        let end = bytes.len();
        bytes[end - 100] ^= 1;
    });
    let opening = scene.open();
    assert_eq!(opening.end(LogKind::Records), Address(20 * CHUNK + 808));
    drop(resume(opening));
    let reader = scene.reader();
    reader.tails().unwrap();
    for n in 0..21 {
        let is_sound = n != 5 && n != 20;
        assert_eq!(verifies(&reader, Address(n * CHUNK)), is_sound, "chunk {n}");
    }
}

#[test]
fn staging_that_cannot_be_opened_while_the_writer_lives_is_an_error() {
    let scene = Scene::new();
    let mut logs = scene.begun();
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
    // The mapping of this process would fault on an empty file; its end is unused here.
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

    let mut logs = resume(scene.open());
    append(&mut logs, LogKind::Records, 15 * CHUNK as usize);
    logs.close().unwrap();
    let segment = scene.segment(LogKind::Records, 0);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .unwrap()
        .set_len(CHUNK)
        .unwrap();
    let reader = scene.reader();
    assert_eq!(reader.tails().unwrap().tail.records, Address(17 * CHUNK));
    let error = reader
        .read(LogKind::Records, Address(CHUNK), &mut [0; 8])
        .unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { path, address: Address(0), .. } if *path == segment),
        "{error}"
    );
    reader
        .read(LogKind::Records, Address(16 * CHUNK), &mut [0; 8])
        .unwrap();
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_durable_mark_above_the_tail_does_not_refuse_the_start() {
    let scene = Scene::new();
    let mut logs = scene.begun();
    logs.publish();
    drop(logs);
    // Imitates a writer that died between its message to the flusher and its word in staging.
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
