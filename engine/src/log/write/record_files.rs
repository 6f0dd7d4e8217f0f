//! What the files of the record log take on the disk: a file of units takes less than its addresses say.
//!
//! The flusher notes what it writes, the writer what is given up. The sum is there for whoever asks at each publish.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::log::files::segment::{SegmentDir, SegmentList, SegmentName};
use crate::log::sync::{AtomicU64, Mutex, Ordering, locked};
use crate::types::Address;

#[derive(Debug)]
pub struct RecordFiles {
    segment_bytes: u64,
    bytes: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Segments below it are given up.
    begin: Address,
    /// The bytes of each file.
    bytes: BTreeMap<Address, u64>,
    /// Units hold what lies below.
    encoded: Address,
}

/// The segments of a record log.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ColumnSegments {
    pub segments: u64,
    /// What they take on the disk.
    pub bytes: u64,
    /// The bytes of the log that they hold.
    pub rows_bytes: u64,
}

impl ColumnSegments {
    /// Those of a list, of a log of which units hold what lies below `encoded`.
    pub fn list(
        folder: &SegmentDir,
        list: &SegmentList,
        encoded: Address,
    ) -> Result<ColumnSegments> {
        let bytes = bytes_of(folder, list)?;
        Ok(ColumnSegments::of(&bytes, folder.segment_bytes(), encoded))
    }

    fn of(files: &BTreeMap<Address, u64>, segment_bytes: u64, encoded: Address) -> ColumnSegments {
        let mut columns = ColumnSegments::default();
        for (first, bytes) in files.iter().filter(|(_, bytes)| **bytes > 0) {
            columns.segments += 1;
            columns.bytes += bytes;
            columns.rows_bytes += encoded.0.saturating_sub(first.0).min(segment_bytes);
        }
        columns
    }
}

fn bytes_of(folder: &SegmentDir, list: &SegmentList) -> Result<BTreeMap<Address, u64>> {
    let mut found = BTreeMap::new();
    for (&first, &generation) in list {
        let bytes = folder.file_bytes(SegmentName { first, generation })?;
        found.extend(bytes.map(|bytes| (first, bytes)));
    }
    Ok(found)
}

impl RecordFiles {
    /// Those of the segments from the one that holds `begin` on.
    pub fn find(
        folder: &SegmentDir,
        list: &SegmentList,
        begin: Address,
        encoded: Address,
    ) -> Result<RecordFiles> {
        let begin = folder.first_of(begin);
        let mut bytes = bytes_of(folder, list)?;
        bytes.retain(|first, _| *first >= begin);
        Ok(RecordFiles {
            segment_bytes: folder.segment_bytes(),
            bytes: AtomicU64::new(bytes.values().sum()),
            kept: Mutex::new(Kept {
                begin,
                bytes,
                encoded,
            }),
        })
    }

    /// The sum.
    pub fn bytes(&self) -> u64 {
        // Ordering: the number carries nothing with it.
        self.bytes.load(Ordering::Relaxed)
    }

    /// A segment's file has so many bytes from now on, and units hold what lies below `encoded`.
    pub fn note(&self, first: Address, bytes: u64, encoded: Address) {
        let mut kept = locked(&self.kept);
        kept.encoded = encoded;
        if first >= kept.begin {
            kept.bytes.insert(first, bytes);
            self.sum(&kept);
        }
    }

    /// Segments that lie wholly below `begin` do not count any more.
    pub fn give_up_below(&self, begin: Address) {
        let mut kept = locked(&self.kept);
        let begin = begin.align_down(self.segment_bytes);
        kept.begin = begin;
        kept.bytes = kept.bytes.split_off(&begin);
        self.sum(&kept);
    }

    fn sum(&self, kept: &Kept) {
        let sum = kept.bytes.values().sum();
        self.bytes.store(sum, Ordering::Relaxed);
    }

    pub fn columns(&self) -> ColumnSegments {
        let kept = locked(&self.kept);
        ColumnSegments::of(&kept.bytes, self.segment_bytes, kept.encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_takes_nothing_and_is_not_noted_again() {
        let files = RecordFiles {
            segment_bytes: 100,
            bytes: AtomicU64::new(0),
            kept: Mutex::default(),
        };
        files.note(Address(0), 30, Address(100));
        files.note(Address(100), 40, Address(200));
        files.note(Address(200), 7, Address(220));
        assert_eq!(files.bytes(), 77);
        let columns = ColumnSegments {
            segments: 3,
            bytes: 77,
            rows_bytes: 220,
        };
        assert_eq!(files.columns(), columns);
        files.give_up_below(Address(150));
        assert_eq!(files.bytes(), 47);
        files.note(Address(0), 10, Address(220));
        files.note(Address(200), 9, Address(240));
        assert_eq!(files.bytes(), 49);
    }
}
