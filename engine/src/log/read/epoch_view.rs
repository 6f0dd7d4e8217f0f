//! What a reader is attached to: the staging of one epoch, or the end that the last writer came to.
//!
//! A view never changes what it is of; a reader that finds another epoch makes another view, and reads under way finish on theirs.

use std::sync::Arc;

use super::records_end::RecordsEnd;
use super::segment_pool::{SegmentKey, forget_view, open_segment};
use crate::error::{Error, Result};
use crate::log::files::durable::DurableState;
use crate::log::files::open_segment::OpenSegment;
use crate::log::files::segment::{SegmentDir, SegmentList, SegmentName};
use crate::log::files::storage::is_not_found;
use crate::log::staging::attachment::Attachment;
use crate::log::sync::{AtomicU64, Mutex, Ordering, locked};
use crate::types::{Address, LogKind, PerLog};

#[derive(Debug)]
pub enum Stage {
    /// Before the first look.
    Unknown,
    Staged(Attachment),
    /// No staging: the slot's state, with the record log as far as recovery would keep it.
    Ended {
        slot: DurableState,
        tails: PerLog<Address>,
        records: Box<RecordsEnd>,
        /// Where records will go on, if above the end of the chunk that they end in.
        gap_to: Option<Address>,
    },
}

#[derive(Debug)]
pub struct View {
    number: u64,
    pub stage: Stage,
    /// The greatest heads seen, so that what is long evicted is not looked for in staging.
    heads: PerLog<AtomicU64>,
    /// The greatest mark seen below which units hold the record log.
    encoded: AtomicU64,
    /// Which segments there were when they were last looked for.
    lists: PerLog<Mutex<Arc<SegmentList>>>,
}

/// Views are numbered in this process, for `segment_pool`.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl View {
    pub fn new(stage: Stage) -> View {
        View {
            // Relaxed: that no two are the same is all that is wanted.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            stage,
            heads: Default::default(),
            encoded: AtomicU64::new(0),
            lists: Default::default(),
        }
    }

    /// Whether this is the end that `slot` describes.
    pub fn is_ended_at(&self, slot: &DurableState) -> bool {
        matches!(&self.stage, Stage::Ended { slot: own, .. } if own.sequence == slot.sequence && own.clean == slot.clean)
    }

    /// The greatest head seen of a log.
    pub fn head(&self, log: LogKind) -> Address {
        // Relaxed: the head only says where to look first, and it is loaded again after every copy.
        Address(self.heads[log].load(Ordering::Relaxed))
    }

    pub fn set_head(&self, log: LogKind, head: Address) {
        self.heads[log].fetch_max(head.0, Ordering::Relaxed);
    }

    /// Units hold the record log below it, as far as this view knows.
    pub fn encoded(&self) -> Address {
        match &self.stage {
            Stage::Unknown => Address::ZERO,
            // Relaxed: what the mark covers is in files, which the kernel orders.
            Stage::Staged(_) => Address(self.encoded.load(Ordering::Relaxed)),
            Stage::Ended { records, .. } => records.encoded,
        }
    }

    pub fn set_encoded(&self, encoded: Address) {
        self.encoded.fetch_max(encoded.0, Ordering::Relaxed);
    }

    /// The segment of that first address, as it was when there was last a look.
    pub fn generation(&self, log: LogKind, first: Address) -> Option<u32> {
        locked(&self.lists[log]).get(&first).copied()
    }

    pub fn forget_lists(&self) {
        forget_view(self.number);
        self.lists
            .iter()
            .for_each(|list| *locked(list) = Arc::default());
    }

    /// Reads exactly the bytes asked for of a record log without staging.
    pub fn read_records(
        &self,
        segments: &SegmentDir,
        records: &RecordsEnd,
        address: Address,
        buffer: &mut [u8],
    ) -> Result<()> {
        let below = records.encoded.0.saturating_sub(address.0);
        let below = below.min(buffer.len() as u64);
        let (in_units, in_tail) = buffer.split_at_mut(below as usize);
        self.read_segments(segments, address, in_units)?;
        match in_tail {
            [] => Ok(()),
            in_tail => records.tail.read(address + below, in_tail),
        }
    }

    /// Reads exactly the bytes asked for from segments. A segment that is not there is looked for twice.
    pub fn read_segments(
        &self,
        segments: &SegmentDir,
        address: Address,
        buffer: &mut [u8],
    ) -> Result<()> {
        let mut address = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (segment, offset) = self.segment(segments, address)?;
            let run = (segments.segment_bytes() - offset).min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at_mut(run);
            let read = segment.read_at(piece, offset)?;
            if read < piece.len() {
                let what = format!(
                    "the file ends at byte {} and should have byte {}",
                    offset + read as u64,
                    offset + piece.len() as u64
                );
                return Err(Error::Corrupt {
                    path: segment.path().to_owned(),
                    address,
                    what,
                });
            }
            address += run as u64;
            rest = later;
        }
        Ok(())
    }

    /// Says that bytes of one segment are read soon.
    pub fn will_read(&self, segments: &SegmentDir, address: Address, bytes: u64) {
        // What cannot be opened is reported when it is read.
        if let Ok((segment, offset)) = self.segment(segments, address) {
            segment.will_read(offset, bytes);
        }
    }

    /// The segment that holds an address, and where in it that stands.
    pub fn segment(&self, segments: &SegmentDir, address: Address) -> Result<(OpenSegment, u64)> {
        let first = segments.first_of(address);
        let key = SegmentKey {
            view: self.number,
            log: segments.log(),
            first,
        };
        let segment = open_segment(key, || self.open(segments, address))?;
        Ok((segment, address.0 - first.0))
    }

    fn open(&self, segments: &SegmentDir, address: Address) -> Result<OpenSegment> {
        let first = segments.first_of(address);
        let list = &self.lists[segments.log()];
        let mut known = Arc::clone(&*locked(list));
        if let Some(&generation) = known.get(&first) {
            match segments.open_to_read(SegmentName { first, generation }) {
                Err(error) if is_not_found(&error) => {}
                segment => return segment,
            }
        }
        known = Arc::new(segments.list()?);
        *locked(list) = Arc::clone(&known);
        let Some(&generation) = known.get(&first) else {
            return Err(segments.missing(&known, address, "the segment file is gone"));
        };
        segments.open_to_read(SegmentName { first, generation })
    }
}
