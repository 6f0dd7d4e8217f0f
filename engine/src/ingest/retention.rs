//! Gives up the oldest segments of the record log, whole, and what the index logs say of them.
//!
//! The caller says how much is too much. A segment of records ends at a chunk; the timestamp index is given up to that chunk's entry, the
//! chunk index to the node that this entry names, so all three logs begin at one point. Readers learn of it before a file goes, and
//! nothing of it needs space on the disk.

use std::time::Duration;

use super::boundary::Boundary;
use super::writer::Writer;
use crate::error::{Error, Result};
use crate::format::{TIME_ENTRY_BYTES, TimeEntry, complete_chunks};
use crate::types::{Address, ChunkNo, LogKind, PerLog};

/// What may be kept. Each limit holds by itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Bytes that the segments of all three logs may take on the disk, the one that is allocated ahead included.
    pub bytes_max: Option<u64>,
    /// How long before now the last record of a segment may have arrived, forward steps of the wall clock not counted.
    pub age_max: Option<Duration>,
    /// The disk is too full: at least the oldest segment goes, once what went before is removed.
    pub disk_is_full: bool,
    /// What stands at this address or past it stays, whatever the other limits say.
    pub kept_from: Option<Address>,
}

/// What was given up.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Eviction {
    /// Segments of the record log that go.
    pub segments: u64,
    /// Why not all went that should have.
    pub shortfall: Option<Shortfall>,
}

/// Why a segment that should go does not.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Shortfall {
    /// It goes when all of it, and what the index logs say of it, is in segments.
    Unwritten,
    /// It is the one that records are written to.
    Current,
    /// It reaches past `kept_from`.
    Kept,
}

impl Writer {
    /// Gives up what the limits do not allow to be kept. The segment that is being written stays, whatever they say.
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

    /// Whether the segments take more than so many bytes, if a limit is given. What is allocated ahead counts before it is: that happens at
    /// any time.
    pub fn is_larger_than(&self, bytes_max: Option<u64>) -> bool {
        bytes_max.is_some_and(|most| self.logs.segment_bytes_soon() > most)
    }

    /// Where the index logs begin when the records begin at `at`, if the chunk there is indexed and everything below it is in segments.
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
            // The index logs lag behind where nothing is synced; the next look finds them written.
            self.logs.request_sync();
        }
        Ok(written.then_some(boundary))
    }
}
