//! Removes the oldest segments of the record log, whole, and their part of the index logs.
//!
//! The caller gives the limits. A segment of records ends at a chunk. The timestamp index is removed up to that chunk's entry, and the
//! chunk index up to the node that this entry names, so all three logs begin at one point. Readers see the new begin before a file is
//! removed, and nothing of this needs space on the disk.

use std::time::Duration;

use super::boundary::Boundary;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::format::{TIME_ENTRY_BYTES, TimeEntry, complete_chunks};
use crate::types::{Address, ChunkNo, LogKind, PerLog};

/// Limits on the retained segments. Each holds by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes that the segments of all three logs may take on the disk, with the one that is allocated ahead.
    pub bytes_max: Option<u64>,
    /// The greatest age of the last record of a segment, without forward steps of the wall clock.
    pub age_max: Option<Duration>,
    /// The disk is too full: at least the oldest segment is removed, unless an earlier removal is still under way.
    pub disk_is_full: bool,
    /// Records at this address or past it stay, whatever the other limits say.
    pub kept_from: Option<Address>,
}

/// The outcome of a call of `evict`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Eviction {
    /// Removed segments of the record log.
    pub segments: u64,
    /// The reason why fewer segments were removed than the limits ask for.
    pub shortfall: Option<Shortfall>,
}

/// The reason why a segment cannot be removed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shortfall {
    /// Part of it, or of its entries in the index logs, is not in segments yet.
    Unwritten,
    /// It is the segment that records are written to.
    Current,
    /// It reaches past `kept_from`.
    Kept,
}

impl Writer {
    /// Removes the segments that exceed the limits. The segment that is being written always stays.
    pub fn evict(&mut self, limits: &Limits) -> Result<Eviction> {
        let segment_bytes = self.meta().segment_bytes.records;
        let mut eviction = Eviction::default();
        let mut disk_is_full = limits.disk_is_full && !self.logs.is_evicting();
        let now = self.now();
        let cutoff = limits.age_max.map(|age| self.clock.steps.before(now, age));
        loop {
            let begin = self.logs.begin(LogKind::Records);
            let next = begin.align_down(segment_bytes) + segment_bytes;
            let too_large = self.is_larger_than(limits.bytes_max);
            if !too_large && !disk_is_full && cutoff.is_none() {
                return Ok(eviction);
            }
            if limits.kept_from.is_some_and(|kept| kept < next) {
                eviction.shortfall = (too_large || disk_is_full).then_some(Shortfall::Kept);
                return Ok(eviction);
            }
            let Some(boundary) = self.boundary(next)? else {
                let shortfall = match next > self.position() {
                    true => Shortfall::Current,
                    false => Shortfall::Unwritten,
                };
                eviction.shortfall = (too_large || disk_is_full).then_some(shortfall);
                return Ok(eviction);
            };
            let too_old = cutoff.is_some_and(|cutoff| boundary.arrival < cutoff);
            if !too_large && !disk_is_full && !too_old {
                return Ok(eviction);
            }
            boundary.warn_of_damage();
            self.logs.evict(boundary.begins(next));
            eviction.segments += 1;
            disk_is_full = false;
        }
    }

    /// Whether the segments take more than `bytes_max`. The next allocation counts already, because it may happen at any time.
    pub fn is_larger_than(&self, bytes_max: Option<u64>) -> bool {
        bytes_max.is_some_and(|most| self.logs.segment_bytes_soon() > most)
    }

    /// The begins of the index logs when the records begin at `at`, if that chunk is indexed and everything below it is in segments.
    fn boundary(&mut self, at: Address) -> Result<Option<Boundary>> {
        let entries = self.logs.tail(LogKind::Times).0 / TIME_ENTRY_BYTES as u64;
        let chunk = at.chunk(self.chunk_bytes).0;
        let end = complete_chunks(entries);
        if at > self.logs.flushed(LogKind::Records) || chunk >= end {
            return Ok(None);
        }
        let reader = self.logs.reader()?;
        let begins = PerLog::new(|log| self.logs.begin(log));
        let boundary = Boundary::find(ChunkNo(chunk), ChunkNo(end), begins, |id| {
            let address = id.entry();
            let mut bytes = [0; TIME_ENTRY_BYTES];
            reader.read(LogKind::Times, address, &mut bytes)?;
            TimeEntry::decode(&reader.meta().uuid, address, &bytes).map_err(|error| {
                Error::Corrupt {
                    path: reader.path_of(LogKind::Times, address),
                    address,
                    what: error.to_string(),
                }
            })
        });
        let written = boundary.node <= self.logs.flushed(LogKind::Chunks)
            && boundary.entry <= self.logs.flushed(LogKind::Times);
        if !written {
            // Without syncs the index logs lag behind; the next call finds them written.
            self.logs.request_sync();
        }
        Ok(written.then_some(boundary))
    }
}
