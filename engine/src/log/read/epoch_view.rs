//! The epoch to which a reader is attached: a writer's staging, or the end that the last writer reached.
//!
//! A view never changes its epoch; a reader that finds another epoch creates another view, and reads in progress finish on theirs.

use std::sync::Arc;

use super::records_end::RecordsEnd;
use super::segment_pool::{SegmentKey, forget_view, open_segment};
use crate::error::{Error, Result};
use crate::log::files::durable::DurableState;
use crate::log::files::open_segment::OpenSegment;
use crate::log::files::segment::{SegmentDir, SegmentList, SegmentName};
use crate::log::files::storage::is_not_found;
use crate::log::files::unit_places::WalkedUnits;
use crate::log::staging::attachment::Attachment;
use crate::log::sync::{AtomicU64, Mutex, Ordering, locked};
use crate::types::{Address, LogKind, PerLog};

#[derive(Debug)]
pub enum Stage {
    /// The state before the first look.
    Unknown,
    Staged(Attachment),
    /// Staging is missing. The state is that of the slot, with the record log as far as recovery would keep it.
    Ended {
        slot: DurableState,
        tails: PerLog<Address>,
        records: Box<RecordsEnd>,
        /// The address where records will continue, if it is above the end of their last chunk.
        gap_to: Option<Address>,
    },
}

#[derive(Debug)]
pub struct View {
    number: u64,
    pub stage: Stage,
    /// The greatest heads seen, so that staging is not searched for evicted bytes.
    heads: PerLog<AtomicU64>,
    /// Units hold the record log below this, the greatest mark seen.
    encoded: AtomicU64,
    /// The segments at the time of the latest listing.
    lists: PerLog<Mutex<Arc<SegmentList>>>,
    walked: WalkedUnits,
}

/// Numbers the views of this process for `segment_pool`.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl View {
    pub fn new(stage: Stage) -> View {
        View {
            // Relaxed: the numbers only have to differ.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            stage,
            heads: Default::default(),
            encoded: AtomicU64::new(0),
            lists: Default::default(),
            walked: WalkedUnits::default(),
        }
    }

    /// Reports whether this is the end that `slot` describes.
    pub fn is_ended_at(&self, slot: &DurableState) -> bool {
        matches!(&self.stage, Stage::Ended { slot: own, .. } if own.sequence == slot.sequence && own.clean == slot.clean)
    }

    pub fn head(&self, log: LogKind) -> Address {
        // Relaxed: the head only says where to look first, and it is loaded again after every copy.
        Address(self.heads[log].load(Ordering::Relaxed))
    }

    pub fn set_head(&self, log: LogKind, head: Address) {
        self.heads[log].fetch_max(head.0, Ordering::Relaxed);
    }

    /// Units hold the record log below this, as far as this view knows.
    pub fn encoded(&self) -> Address {
        match &self.stage {
            Stage::Unknown => Address::ZERO,
            // Relaxed: the mark covers bytes in files, which the kernel orders.
            Stage::Staged(_) => Address(self.encoded.load(Ordering::Relaxed)),
            Stage::Ended { records, .. } => records.encoded,
        }
    }

    pub fn set_encoded(&self, encoded: Address) {
        self.encoded.fetch_max(encoded.0, Ordering::Relaxed);
    }

    /// Returns the segment of that first address in the latest listing.
    pub fn generation(&self, log: LogKind, first: Address) -> Option<u32> {
        locked(&self.lists[log]).get(&first).copied()
    }

    pub fn forget_lists(&self) {
        forget_view(self.number);
        self.walked.forget();
        self.lists
            .iter()
            .for_each(|list| *locked(list) = Arc::default());
    }

    /// Fills the buffer from a record log without staging.
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

    /// Fills the buffer from segments. It looks twice for a missing segment.
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

    /// Announces that bytes of one segment are read soon.
    pub fn will_read(&self, segments: &SegmentDir, address: Address, bytes: u64) {
        // A segment that cannot be opened is reported when it is read.
        if let Ok((segment, offset)) = self.segment(segments, address) {
            segment.will_read(offset, bytes);
        }
    }

    /// Returns the segment that holds an address, and the offset in it.
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
            match segments.open_to_read(SegmentName { first, generation }, &self.walked) {
                Err(error) if is_not_found(&error) => {}
                segment => return segment,
            }
        }
        known = Arc::new(segments.list()?);
        *locked(list) = Arc::clone(&known);
        let Some(&generation) = known.get(&first) else {
            return Err(segments.missing(&known, address, "the segment file is gone"));
        };
        segments.open_to_read(SegmentName { first, generation }, &self.walked)
    }
}
