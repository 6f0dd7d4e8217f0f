//! The end of the logs without staging, as a reader finds it: the same that recovery would keep.

use super::epoch_view::Stage;
use super::reader::LogReader;
use super::records_end::RecordsEnd;
use super::survey::{GAP_CHUNKS_MAX, keep, list_all, missing_chunks, resume_after};
use crate::error::{Error, Result};
use crate::log::files::durable::{self, DurableLog, DurableState};
use crate::log::files::segment::SegmentList;
use crate::types::PerLog;

impl LogReader {
    /// Returns the end that a slot describes. If staging was lost, the end includes the records above it that verify.
    pub(super) fn read_end(&self, known: Option<&DurableState>, is_lost: bool) -> Result<Stage> {
        let (storage, dir, meta) = (&*self.storage, self.dir.as_path(), &self.meta);
        let slot = known.cloned().unwrap_or_default();
        if !is_lost {
            self.require_stored(&slot)?;
            let records = RecordsEnd::of_slot(storage, dir, meta, &slot.logs.records)?;
            return Ok(self.ended(slot, records, None));
        }
        let list = list_all(&self.segments)?;
        let (logs, records) = keep(storage, dir, &self.segments, &list, meta, known)?;
        let slot = DurableState { logs, ..slot };
        self.require_stored(&slot)?;
        Ok(self.ended(slot, records, Some(&list)))
    }

    /// Refuses an end with more missing chunks below it than a crash can cause: a question that looks at each chunk would not end.
    fn require_stored(&self, slot: &DurableState) -> Result<()> {
        let DurableLog { begin, tail, .. } = slot.logs.records;
        let chunks = tail.0.saturating_sub(begin.0) / u64::from(self.meta.chunk_bytes);
        if chunks <= GAP_CHUNKS_MAX {
            return Ok(());
        }
        let folder = &self.segments.records;
        let missing = missing_chunks(folder, &folder.list()?, &self.meta, begin, tail);
        if missing <= GAP_CHUNKS_MAX {
            return Ok(());
        }
        Err(Error::damaged(
            &self.dir.join(durable::NAME),
            format!(
                "it says that the records end at {tail}, {missing} chunks below are in no segment, and no crash leaves so many; restore the segments, or move the file away"
            ),
        ))
    }

    /// Returns the end that the slot describes. If staging was lost, `lost` has the segments that exist.
    fn ended(
        &self,
        slot: DurableState,
        records: RecordsEnd,
        lost: Option<&PerLog<SegmentList>>,
    ) -> Stage {
        let tails = slot.tails();
        let resume = resume_after(&slot.logs, &self.meta, lost);
        let chunk_bytes = u64::from(self.meta.chunk_bytes);
        let gap_to = Some(resume).filter(|resume| *resume > tails.records.align_up(chunk_bytes));
        Stage::Ended {
            slot,
            tails,
            records: Box::new(records),
            gap_to,
        }
    }
}
