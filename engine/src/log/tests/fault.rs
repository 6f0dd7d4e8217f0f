//! A disk that refuses: a storage that fails on demand stands before the real one.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU64, Ordering};

use memmap2::MmapRaw;

use super::*;
use crate::error::{Error, Result};
use crate::log::storage::{FileId, OpenMode, OsStorage, Storage, StorageFile};

/// Which calls on segment files and on `durable` fail, and with what; 0 is none.
#[derive(Debug, Default)]
struct Faults {
    write: AtomicI32,
    allocate: AtomicI32,
    sync: AtomicI32,
    /// Writes are cut to this many bytes, if it is not 0.
    short: AtomicU64,
    syncs: AtomicU64,
    /// How many calls fail before they work again, if it is not 0.
    times: AtomicU64,
    /// Counts writes, syncs and allocations down; the one that makes it 0 fails.
    countdown: AtomicI64,
    /// Free bytes of every file system, if it is not 0.
    free: AtomicU64,
}

impl Faults {
    fn fail(&self, which: &AtomicI32, path: &Path) -> Result<()> {
        let on_disk = path.components().any(|part| part.as_os_str() == "loom");
        if on_disk && self.countdown.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(Error::io(path, std::io::Error::from_raw_os_error(EIO)));
        }
        match which.load(Ordering::Relaxed) {
            code if code != 0 && on_disk => {
                if self.times.fetch_sub(1, Ordering::Relaxed) == 1 {
                    which.store(0, Ordering::Relaxed);
                }
                Err(Error::io(path, std::io::Error::from_raw_os_error(code)))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct FaultyStorage {
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn StorageFile>,
    faults: Arc<Faults>,
}

impl Storage for FaultyStorage {
    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let file = OsStorage.open(path, mode)?;
        Ok(Arc::new(FaultyFile {
            file,
            faults: Arc::clone(&self.faults),
        }))
    }
    fn make_dir(&self, path: &Path) -> Result<()> {
        OsStorage.make_dir(path)
    }
    fn list(&self, path: &Path) -> Result<Vec<String>> {
        OsStorage.list(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        OsStorage.rename(from, to)
    }
    fn unlink(&self, path: &Path) -> Result<()> {
        OsStorage.unlink(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        OsStorage.sync_dir(path)
    }
    fn dir_id(&self, path: &Path) -> Result<FileId> {
        OsStorage.dir_id(path)
    }
    fn free_bytes(&self, path: &Path) -> Result<u64> {
        match self.faults.free.load(Ordering::Relaxed) {
            0 => OsStorage.free_bytes(path),
            free => Ok(free),
        }
    }
    fn boot_id(&self) -> Result<String> {
        OsStorage.boot_id()
    }
}

impl StorageFile for FaultyFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.pread(buffer, offset)
    }
    fn pwrite(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        self.faults.fail(&self.faults.write, self.path())?;
        let most = match self.faults.short.load(Ordering::Relaxed) {
            0 => bytes.len(),
            most => bytes.len().min(most as usize),
        };
        self.file.pwrite(&bytes[..most], offset)
    }
    fn sync(&self) -> Result<()> {
        self.faults.syncs.fetch_add(1, Ordering::Relaxed);
        self.faults.fail(&self.faults.sync, self.path())?;
        self.file.sync()
    }
    fn allocate(&self, bytes: u64) -> Result<()> {
        self.faults.fail(&self.faults.allocate, self.path())?;
        self.file.allocate(bytes)
    }
    fn truncate(&self, bytes: u64) -> Result<()> {
        self.file.truncate(bytes)
    }
    fn bytes(&self) -> Result<u64> {
        self.file.bytes()
    }
    fn id(&self) -> Result<FileId> {
        self.file.id()
    }
    fn is_removed(&self) -> Result<bool> {
        self.file.is_removed()
    }
    fn try_lock(&self) -> Result<bool> {
        self.file.try_lock()
    }
    fn is_locked(&self) -> Result<bool> {
        self.file.is_locked()
    }
    fn map(&self, bytes: usize) -> Result<MmapRaw> {
        self.file.map(bytes)
    }
}

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn faulty(scene: &Scene, durability: Durability) -> (Arc<Faults>, Logs) {
    let storage = FaultyStorage::default();
    let faults = Arc::clone(&storage.faults);
    let options = LogOptions {
        durability,
        ..scene.options()
    };
    let opening = Opening::open_with(Arc::new(storage), &scene.dir(), &options).unwrap();
    (
        faults,
        opening.start(Address(0), Address(0), Address(0)).unwrap(),
    )
}

#[test]
fn a_full_disk_makes_the_writer_wait_and_goes_on_when_it_is_freed() {
    for which in ["write", "allocate"] {
        let scene = Scene::new();
        let (faults, mut logs) = faulty(&scene, Durability::None);
        let fault = if which == "write" {
            &faults.write
        } else {
            &faults.allocate
        };
        fault.store(ENOSPC, Ordering::Relaxed);
        let mut taken = 0;
        // A flusher that is only slow gives `Full` as well: what is waited for is one that says why.
        wait_until("the blocks are full for want of space", || {
            let at = logs.end(LogKind::Records);
            let chunk = expected(LogKind::Records, at, CHUNK as usize);
            match logs.try_append(LogKind::Records, &chunk) {
                Ok(_) => taken += CHUNK,
                Err(error) => {
                    assert!(matches!(error, Error::Full), "{error}");
                    return logs.trouble().is_some_and(|why| why.contains("space"));
                }
            }
            logs.publish();
            false
        });
        assert!((2 * BLOCK..=SEGMENT).contains(&taken), "{which}: {taken}");
        assert!(logs.stats().stalls > 0);
        assert_eq!(check_all(&scene.reader()).tail[0], Address(taken));
        if which == "write" {
            assert!(matches!(logs.sync(), Err(Error::Waiting(_))));
        }

        fault.store(0, Ordering::Relaxed);
        append(&mut logs, LogKind::Records, 20 * BLOCK as usize);
        logs.sync().unwrap();
        check_all(&scene.reader());
        logs.close().unwrap();
        check_all(&scene.reader());
    }
}

#[test]
fn a_stop_on_a_full_disk_keeps_everything_for_the_next_start() {
    let scene = Scene::new();
    let (faults, mut logs) = faulty(&scene, Durability::None);
    append_each(&mut logs, [BLOCK as usize + 808, 168, 48]);
    faults.write.store(ENOSPC, Ordering::Relaxed);
    assert!(matches!(logs.close(), Err(Error::Waiting(_))));
    let opening = scene.open();
    assert_eq!(
        (opening.how(), opening.end(LogKind::Records)),
        (Recovered::Salvaged, Address(BLOCK + 808))
    );
    drop(resume(opening));
    check_range(
        &scene.reader(),
        LogKind::Records,
        Address(0),
        Address(BLOCK + 808),
    );
}

#[test]
fn an_input_output_error_reaches_append_and_sync_and_loses_nothing_published() {
    let scene = Scene::new();
    let (faults, mut logs) = faulty(&scene, Durability::None);
    append_each(&mut logs, [BLOCK as usize + 808, 168, 48]);
    logs.publish();
    faults.write.store(EIO, Ordering::Relaxed);
    let error = logs.sync().unwrap_err();
    assert!(
        matches!(&error, Error::Flusher(_)) && error.to_string().contains("records"),
        "{error}"
    );
    let error = loop {
        if let Err(error) = logs.append(LogKind::Records, &[0; 4096]) {
            break error;
        }
    };
    assert!(matches!(&error, Error::Flusher(_)), "{error}");
    assert!(matches!(
        logs.try_append(LogKind::Records, &[0; 4096]),
        Err(Error::Flusher(_))
    ));
    assert!(logs.close().is_err());
    check_range(
        &scene.reader(),
        LogKind::Records,
        Address(0),
        Address(BLOCK + 808),
    );
}

#[test]
fn a_failed_sync_acknowledges_nothing_and_is_never_repeated() {
    let scene = Scene::new();
    let (faults, mut logs) = faulty(&scene, Durability::None);
    append_each(&mut logs, [808, 168, 48]);
    logs.sync().unwrap();
    append_each(&mut logs, [808, 168, 48]);
    // The new generations fail as well.
    faults.sync.store(EIO, Ordering::Relaxed);
    assert!(matches!(logs.sync(), Err(Error::Flusher(_))));
    faults.sync.store(0, Ordering::Relaxed);
    let syncs = faults.syncs.load(Ordering::Relaxed);
    assert!(matches!(logs.sync(), Err(Error::Flusher(_))));
    assert_eq!(faults.syncs.load(Ordering::Relaxed), syncs);
    assert_eq!(logs.durable(LogKind::Records), Address(808));
    drop(logs);
    let opening = scene.open();
    assert_eq!(opening.end(LogKind::Records), Address(1616));
    drop(resume(opening));
    let left = std::fs::read_dir(scene.dir().join("records")).unwrap();
    assert!(
        left.map(|entry| entry.unwrap().file_name())
            .all(|name| !name.to_str().unwrap().ends_with(".new"))
    );
}

#[test]
fn a_segment_that_the_medium_refused_is_written_anew() {
    for (which, code) in [("write", EIO), ("sync", EIO), ("sync", ENOSPC)] {
        let scene = Scene::new();
        let (faults, mut logs) = faulty(&scene, Durability::None);
        let reader = scene.reader();
        append_each(&mut logs, [3 * BLOCK as usize + 808, 168, 48]);
        logs.sync().unwrap();
        check_all(&reader);
        append_each(&mut logs, [CHUNK as usize, 168, 48]);
        faults.times.store(1, Ordering::Relaxed);
        let fault = if which == "write" {
            &faults.write
        } else {
            &faults.sync
        };
        fault.store(code, Ordering::Relaxed);
        logs.sync().unwrap();
        let old = scene.segment(LogKind::Records, 0);
        assert!(
            !old.exists() && old.with_extension("1").exists(),
            "{which} {code}"
        );
        assert_eq!(logs.durable(LogKind::Records), logs.tail(LogKind::Records));
        check_all(&reader);
        append_each(&mut logs, [5 * BLOCK as usize, 168, 48]);
        logs.publish();
        check_all(&reader);
        logs.close().unwrap();
        check_all(&reader);
        check_all(&scene.reader());
        drop(resume(scene.open()));
    }
}

#[test]
fn what_cannot_be_read_back_stays_damaged_and_hides_nothing() {
    let scene = Scene::new();
    let (faults, mut logs) = faulty(&scene, Durability::None);
    append(
        &mut logs,
        LogKind::Records,
        4 * BLOCK as usize - CHUNK as usize,
    );
    logs.sync().unwrap();
    // The first blocks are not staged any more, and a chunk of them is lost on the medium.
    let path = scene.segment(LogKind::Records, 0);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 16], 2 * CHUNK + 64).unwrap();
    append(&mut logs, LogKind::Records, CHUNK as usize);
    faults.times.store(1, Ordering::Relaxed);
    faults.sync.store(EIO, Ordering::Relaxed);
    logs.sync().unwrap();
    assert!(!path.exists());
    logs.close().unwrap();
    let reader = scene.reader();
    let [tail, ..] = reader.tails().unwrap().tail;
    assert_eq!(tail, Address(4 * BLOCK));
    let mut chunk = vec![0; CHUNK as usize];
    for n in 0..tail.0 / CHUNK {
        reader
            .read(LogKind::Records, Address(n * CHUNK), &mut chunk)
            .unwrap();
        let sound =
            crate::format::verify_chunk(&reader.meta().uuid, Address(n * CHUNK), &chunk).is_ok();
        assert_eq!(sound, n != 2, "chunk {n}");
    }
}

/// Appends and syncs a few times, the `n`th write, sync or allocation of which fails. Returns whether any did.
fn run_with_failure(n: i64, durability: Durability) -> bool {
    let scene = Scene::new();
    let (faults, mut logs) = faulty(&scene, durability);
    faults.countdown.store(n, Ordering::Relaxed);
    let mut acknowledged = [Address(0); 3];
    for round in 0..4 {
        append_each(
            &mut logs,
            [BLOCK as usize + 808 * round, 3 * CHUNK as usize + 168, 48],
        );
        if logs.sync().is_err() {
            break;
        }
        acknowledged = LogKind::ALL.map(|log| logs.tail(log));
        assert!(
            LogKind::ALL
                .iter()
                .all(|&log| logs.durable(log) == logs.tail(log))
        );
    }
    let failed = faults.countdown.load(Ordering::Relaxed) <= 0;
    drop(logs);
    scene.lose_staging();
    let opening = scene.open();
    for (log, acknowledged) in LogKind::ALL.into_iter().zip(acknowledged) {
        assert!(
            opening.end(log) >= acknowledged,
            "call {n}: the {log} ends at {}",
            opening.end(log)
        );
        let mut bytes = vec![0; acknowledged.0 as usize];
        opening.read(log, Address(0), &mut bytes).unwrap();
        assert_whole(log, Address(0), &bytes);
    }
    failed
}

#[test]
fn whichever_call_fails_what_was_acknowledged_is_there() {
    for durability in [Durability::None, Durability::Batch] {
        let calls = (1..)
            .take_while(|n| run_with_failure(*n, durability))
            .count();
        assert!(calls > 20, "only {calls} calls were made");
    }
}

#[test]
fn a_segment_that_cannot_be_allocated_is_tried_as_another_file_and_then_again() {
    for times in [1, 5] {
        let scene = Scene::new();
        let (faults, mut logs) = faulty(&scene, Durability::None);
        faults.times.store(times, Ordering::Relaxed);
        faults.allocate.store(EIO, Ordering::Relaxed);
        append(&mut logs, LogKind::Records, 3 * SEGMENT as usize);
        logs.sync().unwrap();
        assert_eq!(logs.trouble(), None);
        check_all(&scene.reader());
        logs.close().unwrap();
        check_all(&scene.reader());
    }
}

#[test]
fn short_writes_are_completed() {
    let scene = Scene::new();
    let (faults, mut logs) = faulty(&scene, Durability::Interval(Duration::from_millis(1)));
    faults.short.store(1000, Ordering::Relaxed);
    append_each(&mut logs, [6 * BLOCK as usize + 808, 168, 48]);
    logs.sync().unwrap();
    logs.close().unwrap();
    check_all(&scene.reader());
}

#[test]
fn blocks_shrink_where_shared_memory_is_small() {
    const MIB: u64 = 1 << 20;
    // For blocks of 4, 2 and 1 MiB with their index logs, a tenth to spare, and for none of them.
    for (free, staged, in_directory) in [
        (11 * MIB, 4, false),
        (6 * MIB, 2, false),
        (3 * MIB, 1, false),
        (2 * MIB, 4, true),
    ] {
        let scene = Scene::new();
        let storage = FaultyStorage::default();
        storage.faults.free.store(free, Ordering::Relaxed);
        let options = LogOptions {
            block_bytes: 4 * MIB,
            segment_bytes: [8 * MIB; 3],
            ..scene.options()
        };
        let opening = Opening::open_with(Arc::new(storage), &scene.dir(), &options).unwrap();
        let mut logs = opening.start(Address(0), Address(0), Address(0)).unwrap();
        let blocks = staged * MIB + (staged * MIB / 8).max(BLOCK) + (staged * MIB / 64).max(BLOCK);
        assert_eq!(logs.staging_bytes(), 4096 + 2 * blocks);
        assert_eq!(scene.staging_files().is_empty(), in_directory);
        append_each(&mut logs, [3 * MIB as usize, 1 << 20, 48]);
        logs.publish();
        check_all(&scene.reader());
        logs.close().unwrap();
        check_all(&scene.reader());
    }
}

#[test]
fn a_full_disk_at_the_start_is_refused_clearly() {
    let scene = Scene::new();
    let storage = FaultyStorage::default();
    let opening =
        Opening::open_with(Arc::new(storage.clone()), &scene.dir(), &scene.options()).unwrap();
    storage.faults.allocate.store(ENOSPC, Ordering::Relaxed);
    let error = opening
        .start(Address(0), Address(0), Address(0))
        .unwrap_err();
    assert!(error.to_string().contains("No space left"), "{error}");
    storage.faults.allocate.store(0, Ordering::Relaxed);
    let mut logs = resume(scene.open());
    append_each(&mut logs, [808, 168, 48]);
    logs.close().unwrap();
    check_all(&scene.reader());
}
