//! How much less the segments of the record log take on the disk than their addresses say: columns take less than rows, and those that are missing take
//! nothing.
//!
//! The compactor notes what became columns, the writer what is given up. The sum is there for whoever asks at each publish.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::log::files::segment::{SegmentDir, SegmentForm, SegmentList, SegmentName};
use crate::log::sync::{AtomicU64, Mutex, Ordering, locked};
use crate::types::Address;

#[derive(Debug)]
pub struct Savings {
    segment_bytes: u64,
    saved_bytes: AtomicU64,
    shorter: Mutex<Shorter>,
}

#[derive(Debug, Default)]
struct Shorter {
    /// Segments below it are given up.
    begin: Address,
    /// The bytes of the column segments, and 0 for those that are missing.
    bytes: BTreeMap<Address, u64>,
}

/// The column segments of a record log.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct ColumnSegments {
    pub segments: u64,
    /// What they take on the disk.
    pub bytes: u64,
    /// What they took as rows.
    pub rows_bytes: u64,
}

impl ColumnSegments {
    fn add(&mut self, rows_bytes: u64, bytes: u64) {
        self.segments += 1;
        self.bytes += bytes;
        self.rows_bytes += rows_bytes;
    }

    /// Those of a list, of a log that ends at `end`.
    pub fn list(folder: &SegmentDir, list: &SegmentList, end: Address) -> Result<ColumnSegments> {
        let mut columns = ColumnSegments::default();
        for (first, bytes) in column_bytes(folder, list)? {
            let rows_bytes = end.0.saturating_sub(first.0).min(folder.segment_bytes());
            columns.add(rows_bytes, bytes);
        }
        Ok(columns)
    }
}

fn column_bytes(folder: &SegmentDir, list: &SegmentList) -> Result<BTreeMap<Address, u64>> {
    let mut found = BTreeMap::new();
    for (&first, &generation) in list {
        if generation.form == SegmentForm::Columns {
            let bytes = folder.file_bytes(SegmentName { first, generation })?;
            found.extend(bytes.map(|bytes| (first, bytes)));
        }
    }
    Ok(found)
}

impl Savings {
    /// Those of the segments from the one that holds `from` up to the one that holds `to`.
    pub fn find(
        folder: &SegmentDir,
        list: &SegmentList,
        from: Address,
        to: Address,
    ) -> Result<Savings> {
        let segment_bytes = folder.segment_bytes();
        let (begin, end) = (folder.first_of(from), folder.first_of(to));
        let mut bytes = column_bytes(folder, list)?;
        bytes.retain(|first, _| *first >= begin);
        let firsts = (begin.0..end.0)
            .step_by(segment_bytes as usize)
            .map(Address);
        bytes.extend(
            firsts
                .filter(|first| !list.contains_key(first))
                .map(|first| (first, 0)),
        );
        let saved = bytes
            .values()
            .map(|bytes| segment_bytes.saturating_sub(*bytes))
            .sum();
        Ok(Savings {
            segment_bytes,
            saved_bytes: AtomicU64::new(saved),
            shorter: Mutex::new(Shorter { begin, bytes }),
        })
    }

    /// The sum.
    pub fn bytes(&self) -> u64 {
        // Ordering: the number carries nothing with it.
        self.saved_bytes.load(Ordering::Relaxed)
    }

    /// A segment takes so many bytes from now on. `false` if it is given up.
    pub fn note(&self, first: Address, bytes: u64) -> bool {
        let mut shorter = locked(&self.shorter);
        if first < shorter.begin {
            return false;
        }
        shorter.bytes.insert(first, bytes);
        self.sum(&shorter);
        true
    }

    /// Segments that lie wholly below `begin` do not count any more.
    pub fn give_up_below(&self, begin: Address) {
        let mut shorter = locked(&self.shorter);
        let begin = begin.align_down(self.segment_bytes);
        shorter.begin = begin;
        shorter.bytes = shorter.bytes.split_off(&begin);
        self.sum(&shorter);
    }

    fn sum(&self, shorter: &Shorter) {
        let saved = shorter
            .bytes
            .values()
            .map(|bytes| self.segment_bytes.saturating_sub(*bytes));
        self.saved_bytes.store(saved.sum(), Ordering::Relaxed);
    }

    pub fn columns(&self) -> ColumnSegments {
        let mut columns = ColumnSegments::default();
        for bytes in locked(&self.shorter).bytes.values() {
            if *bytes > 0 {
                columns.add(self.segment_bytes, *bytes);
            }
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn savings() -> Savings {
        Savings {
            segment_bytes: 100,
            saved_bytes: AtomicU64::new(0),
            shorter: Mutex::default(),
        }
    }

    #[test]
    fn columns_save_the_difference_and_missing_segments_all() {
        let savings = savings();
        assert!(savings.note(Address(0), 0));
        assert!(savings.note(Address(100), 30));
        assert!(savings.note(Address(300), 40));
        assert_eq!(savings.bytes(), 100 + 70 + 60);
        let columns = ColumnSegments {
            segments: 2,
            bytes: 70,
            rows_bytes: 200,
        };
        assert_eq!(savings.columns(), columns);
    }

    #[test]
    fn what_is_given_up_saves_nothing_and_is_not_noted_again() {
        let savings = savings();
        assert!(savings.note(Address(0), 30));
        assert!(savings.note(Address(100), 30));
        savings.give_up_below(Address(150));
        assert_eq!(savings.bytes(), 70);
        assert!(!savings.note(Address(0), 10));
        assert!(savings.note(Address(200), 10));
        assert_eq!(savings.bytes(), 160);
    }
}
