//! A directory of a test's own, with small chunks, blocks and segments, and with its staging beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::ingest::{Writer, WriterOptions};
use crate::log::{Durability, LogOptions, LogReader};
use crate::query::{Directory, Loss, Poll, Snapshot};
use crate::types::LogKind;

pub const CHUNK: u64 = 4 << 10;
pub const BLOCK: u64 = 64 << 10;
pub const SEGMENT: u64 = 256 << 10;

/// Options of a log with chunks of 4 KiB, and three kinds of segments of the same size.
pub fn options(block_bytes: u64, segment_bytes: u64) -> WriterOptions {
    let log = LogOptions {
        chunk_bytes: CHUNK as u32,
        block_bytes,
        segment_bytes: [segment_bytes; 3].into(),
        ..LogOptions::default()
    };
    WriterOptions {
        log,
        ..WriterOptions::default()
    }
}

#[derive(Debug)]
pub struct Scene {
    pub root: tempfile::TempDir,
    pub options: WriterOptions,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::at(tempfile::tempdir().unwrap())
    }

    /// In a folder that is empty.
    pub fn at(root: tempfile::TempDir) -> Scene {
        let staging = root.path().join("shm");
        fs::create_dir(&staging).unwrap();
        let mut options = options(BLOCK, SEGMENT);
        options.log.staging = Some(staging);
        options.log.durability = Durability::None;
        Scene { root, options }
    }

    pub fn dir(&self) -> PathBuf {
        self.root.path().join("loom")
    }

    pub fn writer(&self) -> Writer {
        Writer::open(&self.dir(), self.options.clone()).unwrap()
    }

    /// A writer begins and ends.
    pub fn restart(&self) {
        self.writer().close().unwrap();
    }

    pub fn rebuild(&self) {
        let writer = Writer::rebuild(&self.dir(), self.options.clone()).unwrap();
        writer.close().unwrap();
    }

    pub fn reader(&self) -> LogReader {
        LogReader::open(&self.dir()).unwrap()
    }

    pub fn directory(&self) -> std::sync::Arc<Directory> {
        Directory::open(&self.dir()).unwrap()
    }

    /// The view of a process that opens the directory now.
    pub fn snapshot(&self) -> Snapshot {
        self.directory().snapshot().unwrap()
    }

    pub fn losses(&self) -> Vec<Loss> {
        self.snapshot().losses(&Poll::never()).unwrap()
    }

    pub fn report(&self) -> crate::check::Report {
        crate::check::check(&self.dir()).unwrap()
    }

    pub fn is_sound(&self) -> bool {
        self.report().is_sound()
    }

    /// The staging files that there are.
    pub fn staging_files(&self) -> Vec<PathBuf> {
        paths(&self.root.path().join("shm"))
    }

    /// The effect of a crash of the host after the writer is gone: everything durable remains, and no staging.
    pub fn lose_staging(&self) {
        let files = self.staging_files();
        files.iter().for_each(|path| fs::remove_file(path).unwrap());
    }

    pub fn segment(&self, log: LogKind, first: u64) -> PathBuf {
        let folder = self.dir().join(log.dir_name());
        folder.join(format!("{first:020}.0"))
    }

    /// The files of a log, ascending.
    pub fn segments(&self, log: LogKind) -> Vec<PathBuf> {
        paths(&self.dir().join(log.dir_name()))
    }

    /// Damages the head of a unit of a segment of the record log, or mends it.
    pub fn flip_unit(&self, path: &Path, nth: usize) {
        self.change(path, |bytes| {
            let length = |place: usize| {
                let found: &[u8; 4] = bytes[place + 8..].first_chunk().unwrap();
                u32::from_le_bytes(*found) as usize
            };
            let place = (0..nth).fold(0, |place, _| place + length(place));
            bytes[place + 20] ^= 1;
        });
    }

    /// Overwrites a file with what `change` makes of its bytes.
    pub fn change(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, &bytes).unwrap();
    }
}

/// The content of a folder, ordered by name.
pub fn paths(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for path in paths(from) {
        let target = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_dir(&path, &target),
            false => drop(fs::copy(path, target).unwrap()),
        }
    }
}

/// Waits for a condition; fails after long enough that it will never hold.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        let waited = since.elapsed();
        assert!(waited < Duration::from_secs(30), "{what} never held");
        std::thread::sleep(Duration::from_millis(1));
    }
}
