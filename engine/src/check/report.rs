//! The result of a check.

use std::fmt;
use std::path::PathBuf;

use crate::log::LogReader;
use crate::types::{Address, LogKind};

/// The most damages that are listed; further ones are only counted.
const LISTED_MAX: usize = 100;

/// The progress of a check.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The bytes of the record log that were checked or skipped.
    pub bytes: u64,
    pub bytes_in_all: u64,
}

/// The amount that a check read, and the damage that it found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub chunks: u64,
    /// Chunks among these that are in staging, where checksums are not verified.
    pub staged_chunks: u64,
    /// Chunks among these after the last summary.
    pub open_chunks: u64,
    /// Chunks that were lost with staging, as the log itself records.
    pub gap_chunks: u64,
    pub records: u64,
    /// Causes of loss without a record in the log yet.
    pub pending_losses: u64,
    /// Summaries and roll-ups.
    pub nodes: u64,
    /// The listed damage.
    pub damage: Vec<Damage>,
    /// The damaged files beside the logs, and damaged directories of segments.
    pub files: Vec<DamagedFile>,
    /// The number of damages of both kinds, listed or not.
    pub damage_count: u64,
}

/// A damaged file beside the logs.
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

/// Damaged bytes of a log.
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
        if self.damage.len() < LISTED_MAX {
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
