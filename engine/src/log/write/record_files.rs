//! The bytes of the record log's files on the disk: a file of units is shorter than its addresses.
//!
//! The flusher notes the files that it writes, the writer the segments that it gives up. The sum is needed at each publish.

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
    /// Units hold everything below it.
    encoded: Address,
}

/// The sizes of the segments of the record log.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RecordSegments {
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// The bytes of the log in their units.
    pub encoded_bytes: u64,
}

impl RecordSegments {
    /// Sums up the segments of a list, for a log whose units end at `encoded`.
    pub fn list(
        folder: &SegmentDir,
        list: &SegmentList,
        encoded: Address,
    ) -> Result<RecordSegments> {
        let bytes = bytes_of(folder, list)?;
        Ok(RecordSegments::of(&bytes, folder.segment_bytes(), encoded))
    }

    fn of(files: &BTreeMap<Address, u64>, segment_bytes: u64, encoded: Address) -> RecordSegments {
        let mut found = RecordSegments::default();
        for (first, bytes) in files.iter().filter(|(_, bytes)| **bytes > 0) {
            found.disk_bytes += bytes;
            found.encoded_bytes += encoded.0.saturating_sub(first.0).min(segment_bytes);
        }
        found
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
    /// Finds the segments from the one that holds `begin` on.
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

    /// The bytes of all files that are counted.
    pub fn bytes(&self) -> u64 {
        // Relaxed: the number guards no memory.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes the length of a segment's file, and that units hold everything below `encoded`.
    pub fn note(&self, first: Address, bytes: u64, encoded: Address) {
        let mut kept = locked(&self.kept);
        kept.encoded = encoded;
        if first >= kept.begin {
            kept.bytes.insert(first, bytes);
            self.sum(&kept);
        }
    }

    /// Stops counting segments that lie wholly below `begin`.
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

    pub fn segments(&self) -> RecordSegments {
        let kept = locked(&self.kept);
        RecordSegments::of(&kept.bytes, self.segment_bytes, kept.encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_was_given_up_takes_no_bytes_and_is_not_noted_again() {
        let files = RecordFiles {
            segment_bytes: 100,
            bytes: AtomicU64::new(0),
            kept: Mutex::default(),
        };
        files.note(Address(0), 30, Address(100));
        files.note(Address(100), 40, Address(200));
        files.note(Address(200), 7, Address(220));
        assert_eq!(files.bytes(), 77);
        let found = RecordSegments {
            disk_bytes: 77,
            encoded_bytes: 220,
        };
        assert_eq!(files.segments(), found);
        files.give_up_below(Address(150));
        assert_eq!(files.bytes(), 47);
        files.note(Address(0), 10, Address(220));
        files.note(Address(200), 9, Address(240));
        assert_eq!(files.bytes(), 49);
    }
}
