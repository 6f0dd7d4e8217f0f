//! The logs on a simulated disk.

use super::simulated::{Disk, Fault, Kind, Op, Rule, loom, shared_memory};
use super::*;

/// A directory on a disk of its own.
pub struct Machine {
    pub disk: Disk,
}

impl Machine {
    pub fn new() -> Machine {
        Machine { disk: Disk::new() }
    }

    pub fn options(&self, durability: Durability) -> LogOptions {
        LogOptions {
            chunk_bytes: CHUNK as u32,
            block_bytes: BLOCK,
            segment_bytes: [SEGMENT; 3].into(),
            staging: Some(shared_memory()),
            durability,
            encoders: 1,
            group: None,
        }
    }

    /// The same with so many encoders, and with blocks of as many units.
    pub fn options_of(&self, durability: Durability, encoders: usize) -> LogOptions {
        LogOptions {
            block_bytes: encoders as u64 * BLOCK,
            encoders,
            ..self.options(durability)
        }
    }

    /// The disk refuses what is asked of it in this way.
    pub fn fails(&self, code: i32, kind: Kind) {
        let rule = Rule::always(Fault::Fails(code), on_disk(kind));
        self.disk.rule(rule);
    }

    /// The disk refuses one of these operations.
    pub fn fails_once(&self, code: i32, kind: Kind) {
        let rule = Rule::once(Fault::Fails(code), on_disk(kind));
        self.disk.rule(rule);
    }

    pub fn open(&self) -> Opening {
        self.open_with(&self.options(Durability::None))
    }

    pub fn open_with(&self, options: &LogOptions) -> Opening {
        self.try_open_with(options).unwrap()
    }

    pub fn try_open_with(&self, options: &LogOptions) -> crate::Result<Opening> {
        Opening::open_with(self.disk.storage(), &loom(), options)
    }

    /// Starts a new directory that appends from 0.
    pub fn start(&self, durability: Durability) -> Logs {
        self.start_with(&self.options(durability))
    }

    pub fn start_with(&self, options: &LogOptions) -> Logs {
        self.open_with(options)
            .begin_at(Address(0), Address(0), Address(0), b"")
            .unwrap()
    }

    pub fn reader(&self) -> LogReader {
        LogReader::open_with(self.disk.storage(), &loom()).unwrap()
    }

    pub fn segment(&self, first: u64) -> PathBuf {
        loom().join(format!("records/{first:020}.0"))
    }

    pub fn names(&self, folder: &Path) -> Vec<String> {
        self.disk.storage().list(folder).unwrap()
    }

    pub fn count(&self, fits: impl Fn(&Op) -> bool) -> usize {
        self.disk.ops().iter().filter(|op| fits(op)).count()
    }
}

pub fn on_disk(kind: Kind) -> impl Fn(&Op) -> bool + Send + 'static {
    move |op| op.kind == kind && op.is_on_disk()
}
