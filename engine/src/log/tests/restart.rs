//! Clean stops, and operations on a directory after one.

use super::*;
use crate::error::Error;
use crate::format::UNIT_HEADER_BYTES;

#[test]
fn a_clean_stop_trims_the_segments_and_leaves_no_staging() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [SEGMENT as usize + 4904, 168, 48]);
    logs.close().unwrap();
    assert!(scene.staging_files().is_empty() && !scene.dir().join("staging").exists());
    let bytes = |log, first| std::fs::metadata(scene.segment(log, first)).unwrap().len();
    let units = SEGMENT / BLOCK;
    let directory = 8 * (units + 1) + 16;
    let unit_bytes = UNIT_HEADER_BYTES as u64 + BLOCK;
    assert_eq!(bytes(LogKind::Records, 0), units * unit_bytes + directory);
    // Only a part of the last unit exists, in the tail.
    assert_eq!(bytes(LogKind::Records, SEGMENT), 0);
    assert_eq!(
        (bytes(LogKind::Chunks, 0), bytes(LogKind::Times, 0)),
        (168, 48)
    );
    assert!(!scene.segment(LogKind::Records, 2 * SEGMENT).exists());
    let tails = check_all(&scene.reader());
    assert_eq!(
        tails.tail,
        [Address(SEGMENT + 4904), Address(168), Address(48)].into()
    );
    assert!(!tails.live);
}

// case Crash: between the index logs
#[test]
fn index_logs_may_be_cut_and_go_on_from_there() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [8192, 3 * SEGMENT as usize, 4800]);
    logs.close().unwrap();
    let opening = scene.open();
    let mut logs = opening
        .begin_at(Address(8192), Address(SEGMENT + 808), Address(0), b"")
        .unwrap();
    assert!(!scene.segment(LogKind::Chunks, 2 * SEGMENT).exists());
    let tails = check_all(&scene.reader());
    assert_eq!(
        tails.tail,
        [Address(8192), Address(SEGMENT + 808), Address(0)].into()
    );
    append_each(&mut logs, [0, BLOCK as usize, 48]);
    logs.close().unwrap();
    check_all(&scene.reader());
}

// case Concurrency: two writers
#[test]
fn a_second_writer_is_refused_and_does_no_harm() {
    let scene = Scene::new();
    let mut logs = scene.begun();
    logs.publish();
    let error = Opening::open(&scene.dir(), &scene.options.log).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    check_all(&scene.reader());
    // Someone may remove the file that seems to be in the way.
    std::fs::remove_file(scene.dir().join("LOCK")).unwrap();
    let error = Opening::open(&scene.dir(), &scene.options.log).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    check_all(&scene.reader());
    logs.close().unwrap();
    drop(scene.open());
}

#[test]
fn a_note_that_cannot_be_read_is_refused_until_it_and_its_copy_are_moved_away() {
    let scene = Scene::new();
    let mut logs = scene.begun();
    logs.sync().unwrap();
    drop(logs);
    let note = scene.dir().join("staging");
    for damaged in ["", "{", "[]"] {
        std::fs::write(&note, damaged).unwrap();
        std::fs::write(scene.dir().join("staging.copy"), damaged).unwrap();
        let error = Opening::open(&scene.dir(), &scene.options.log).unwrap_err();
        let message = format!("{}: damaged: ", note.display());
        let error = error.to_string();
        assert!(
            error.starts_with(&message) && error.contains("move both away"),
            "{error}"
        );
        let of_reader = scene.reader().tails().unwrap_err().to_string();
        assert_eq!(of_reader, error);
    }
    for name in ["staging", "staging.copy"] {
        std::fs::remove_file(scene.dir().join(name)).unwrap();
    }
    let opening = scene.open();
    assert_eq!(opening.how(), Recovered::StagingLost);
    assert_eq!(opening.end(LogKind::Records), Address(808));
    drop(resume(opening));
}

#[test]
fn a_lock_that_its_file_does_not_account_for_names_nobody() {
    let scene = Scene::new();
    scene.create(Durability::None).close().unwrap();
    let refusal = || {
        Opening::open(&scene.dir(), &scene.options.log)
            .unwrap_err()
            .to_string()
    };
    let path = scene.dir().join("LOCK");
    // Anyone who may read the file can hold its lock.
    let file = std::fs::File::open(&path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).unwrap();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let pid = ended.id();
    std::fs::write(&path, format!("{pid}\n")).unwrap();
    let error = refusal();
    assert!(
        error.contains(&format!(
            "by another process; LOCK names process {pid}, which does not run here"
        )),
        "{error}"
    );
    let pid = std::process::id();
    std::fs::write(&path, format!("{pid}\n")).unwrap();
    let error = refusal();
    assert!(
        error.ends_with(&format!("by another writer, process {pid}")),
        "{error}"
    );
    for nobody in ["", "x\n", "0\n", "-1\n"] {
        std::fs::write(&path, nobody).unwrap();
        let error = refusal();
        assert!(error.contains("which LOCK does not name"), "{error}");
    }
    drop(file);
    drop(scene.open());
}

// G6
#[test]
fn readers_do_not_keep_a_writer_from_starting() {
    let scene = Scene::new();
    scene.create(Durability::None).close().unwrap();
    let readers: Vec<LogReader> = (0..3).map(|_| scene.reader()).collect();
    readers
        .iter()
        .for_each(|reader| assert!(!reader.tails().unwrap().live));
    let logs = resume(scene.open());
    readers
        .iter()
        .for_each(|reader| assert!(reader.tails().unwrap().live));
    logs.close().unwrap();
}

#[test]
fn a_directory_that_cannot_be_written_is_read() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [SEGMENT as usize + 808, 168, 48]);
    logs.close().unwrap();
    let before: Vec<_> = walk(&scene.dir());
    for (path, is_dir) in &before {
        std::fs::set_permissions(
            path,
            std::fs::Permissions::from_mode(if *is_dir { 0o500 } else { 0o400 }),
        )
        .unwrap();
    }
    check_all(&scene.reader());
    assert_eq!(walk(&scene.dir()), before);
    for (path, _) in before.iter().rev() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}

fn walk(dir: &Path) -> Vec<(PathBuf, bool)> {
    let mut found = vec![(dir.to_owned(), true)];
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(walk(&path))
        } else {
            found.push((path, false))
        }
    }
    found.sort();
    found
}

#[test]
fn files_and_folders_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new();
    let mut logs = scene.begun();
    logs.append_catalog("a line\n").unwrap();
    logs.sync().unwrap();
    let staging = scene.staging_files().into_iter().map(|path| (path, false));
    for (path, is_dir) in walk(&scene.dir()).into_iter().chain(staging) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            mode,
            if is_dir { 0o700 } else { 0o600 },
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_log_without_its_description_is_refused() {
    let scene = Scene::new();
    scene.create(Durability::None).close().unwrap();
    for name in ["loom.json", "loom.json.copy"] {
        std::fs::remove_file(scene.dir().join(name)).unwrap();
    }
    assert!(matches!(
        Opening::open(&scene.dir(), &scene.options.log),
        Err(Error::NotLoom { .. })
    ));
    assert!(matches!(
        LogReader::open(&scene.dir()),
        Err(Error::NotLoom { .. })
    ));
    assert!(matches!(
        LogReader::open(Path::new("/nowhere/at/all")),
        Err(Error::NotLoom { .. })
    ));
}

// case Corruption: a damaged staging, a damaged or lost catalog or loom.json
#[test]
fn a_catalog_whose_name_is_gone_is_copied_from_the_open_file() {
    let scene = Scene::new();
    let [path, copy] = ["catalog", "catalog.copy"].map(|name| scene.dir().join(name));
    std::fs::create_dir_all(&copy).unwrap();
    let mut logs = scene.create(Durability::None);
    logs.append_catalog("one\n").unwrap();
    std::fs::remove_file(path).unwrap();
    std::fs::remove_dir(&copy).unwrap();
    logs.append_catalog("two\n").unwrap();
    assert_eq!(std::fs::read(copy).unwrap(), b"one\ntwo\n");
}

// case Corruption: no file in a segment's place
#[test]
fn a_link_in_place_of_a_folder_or_a_segment_leads_nowhere() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [SEGMENT as usize, 168, 48]);
    logs.close().unwrap();
    let elsewhere = scene.root.path().join("elsewhere");
    let segment = scene.segment(LogKind::Records, 0);
    std::fs::rename(&segment, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &segment).unwrap();
    let reader = scene.reader();
    reader.tails().unwrap();
    let refusal = |reader: LogReader| {
        let read = reader.read(LogKind::Records, Address(0), &mut [0; 64]);
        read.unwrap_err().to_string()
    };
    let what = "is in place of the file: move it away, and restore the file if you have it";
    let message = |found: &str| format!("{}: damaged: {found} {what}", segment.display());
    assert_eq!(
        refusal(reader),
        message("a symbolic link, which Loom does not follow,")
    );
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    assert_eq!(refusal(scene.reader()), message("a folder"));
    std::fs::remove_dir(&segment).unwrap();
    std::fs::rename(&elsewhere, &segment).unwrap();

    let folder = scene.dir().join("records");
    std::fs::rename(&folder, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &folder).unwrap();
    let reader = scene.reader();
    let error = reader.tails().unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    let error = Opening::open(&scene.dir(), &scene.options.log).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

// case Corruption: durable lost or of no use
#[test]
fn each_slot_of_a_clean_stop_suffices_to_recognise_it() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [8 * 1001, 8 * 101, 48 * 9]);
    let ends = PerLog::new(|log| logs.end(log));
    logs.close().unwrap();
    let path = scene.dir().join("durable");
    let sound = std::fs::read(&path).unwrap();
    for slot in [0, 4096] {
        let mut flipped = sound.clone();
        flipped[slot + 50] ^= 1;
        std::fs::write(&path, &flipped).unwrap();
        let opening = scene.open();
        assert_eq!(opening.how(), Recovered::Clean);
        assert_eq!(PerLog::new(|log| opening.end(log)), ends);
    }
}

#[test]
fn unfinished_files_of_a_killed_writer_are_removed() {
    let scene = Scene::new();
    scene.create(Durability::None).close().unwrap();
    let names = ["catalog.tmp", "loom.json.copy.tmp", "mine.tmp"];
    for name in names {
        std::fs::write(scene.dir().join(name), "half").unwrap();
    }
    drop(scene.open());
    let left = names.map(|name| scene.dir().join(name).exists());
    assert_eq!(left, [false, false, true]);
}
