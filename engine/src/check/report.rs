//! What a check found.

use std::fmt;
use std::path::PathBuf;

use crate::log::LogReader;
use crate::types::{Address, LogKind};

/// So many are listed; more are only counted.
const TOLD_MAX: usize = 100;

/// How far a check is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Of the record log that were checked or passed over.
    pub bytes: u64,
    pub bytes_in_all: u64,
}

/// What a check read, and what of it is damaged.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Chunks that were read.
    pub chunks: u64,
    /// Of these: chunks in staging, whose checksums are not looked at.
    pub staged_chunks: u64,
    /// Of these: chunks past the last summary.
    pub open_chunks: u64,
    /// Chunks that were lost with staging, and are known to be.
    pub gap_chunks: u64,
    pub records: u64,
    /// Causes of loss that have no record in the log yet.
    pub pending_losses: u64,
    /// Summaries and roll-ups.
    pub nodes: u64,
    /// What is damaged, as far as the list goes.
    pub damage: Vec<Damage>,
    /// What is damaged beside the logs, and of column segments their directories.
    pub files: Vec<DamagedFile>,
    /// Of both kinds, listed or not.
    pub damage_count: u64,
}

/// A file beside the logs that does not say what it should.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DamagedFile {
    pub path: PathBuf,
    pub what: String,
}

impl fmt::Display for DamagedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

/// Bytes that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    pub log: LogKind,
    pub address: Address,
    /// The segment that holds the address.
    pub path: PathBuf,
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage {
            log,
            address,
            path,
            what,
        } = self;
        write!(f, "{}: {log}, address {address}: {what}", path.display())
    }
}

impl Report {
    /// Whether nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.damage_count == 0
    }

    pub(super) fn damage(
        &mut self,
        reader: &LogReader,
        log: LogKind,
        address: Address,
        what: String,
    ) {
        self.damage_count += 1;
        if self.damage.len() < TOLD_MAX {
            let path = reader.path_of(log, address);
            self.damage.push(Damage {
                log,
                address,
                path,
                what,
            });
        }
    }
}
