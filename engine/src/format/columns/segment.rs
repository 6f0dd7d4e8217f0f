//! The directory at the end of a segment of the record log, which lists the places of its units.
//!
//! Damage to it loses nothing: units contain their own lengths, so a reader can walk them.

use super::{COLUMNS_LOG, UNIT_CHUNKS};
use crate::format::bytes::{FormatError, invalid, u32_at, u64_at};
use crate::format::checksum::checksum_for;
use crate::proven::at;
use crate::types::Address;

/// The footer behind the directory: its checksum, the number of units, and a mark.
const SEGMENT_FOOTER_BYTES: usize = 16;
const SEGMENT_MAGIC: u64 = 0x534E_4D43_4D4F_4F4C;
/// A segment has no more units, so that a reader can take its directory into memory.
pub const SEGMENT_UNITS_MOST: u64 = 1 << 20;

/// The start of each unit of a segment, and the end of the last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentDirectory {
    starts: Vec<u64>,
}

impl SegmentDirectory {
    /// `starts` holds the start of each unit and the end of the last.
    pub fn new(starts: Vec<u64>) -> SegmentDirectory {
        assert!(!starts.is_empty(), "a directory knows where the units end");
        SegmentDirectory { starts }
    }

    pub fn into_starts(self) -> Vec<u64> {
        self.starts
    }

    pub fn units(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes of a directory of so many units, its footer included.
    pub fn bytes_of(units: usize) -> usize {
        (units + 1) * 8 + SEGMENT_FOOTER_BYTES
    }

    /// The number of units in a segment with `segment_bytes` of rows.
    pub fn units_of(segment_bytes: u64, chunk_bytes: u32) -> usize {
        segment_bytes.div_ceil(UNIT_CHUNKS * u64::from(chunk_bytes)) as usize
    }

    /// Appends the directory of the segment at `first`.
    pub fn encode(&self, uuid: &[u8; 16], first: Address, out: &mut Vec<u8>) {
        let start = out.len();
        for place in &self.starts {
            out.extend_from_slice(&place.to_le_bytes());
        }
        let checksum = checksum_for(uuid, COLUMNS_LOG, first.0, at(out, start..));
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&(self.units() as u32).to_le_bytes());
        out.extend_from_slice(&SEGMENT_MAGIC.to_le_bytes());
    }

    /// Decodes the directory from the last bytes of a segment of `units` units, whose file has `file_bytes` bytes.
    pub fn decode(
        uuid: &[u8; 16],
        first: Address,
        units: usize,
        bytes: &[u8],
        file_bytes: u64,
    ) -> Result<SegmentDirectory, FormatError> {
        let need = SegmentDirectory::bytes_of(units);
        if bytes.len() != need {
            return Err(FormatError::Short {
                what: "the directory of a segment",
                have: bytes.len(),
                need,
            });
        }
        let (table, footer) = bytes.split_at(need - SEGMENT_FOOTER_BYTES);
        let (stored, stored_units) = (u32_at(footer, 0), u32_at(footer, 4));
        if u64_at(footer, 8) != SEGMENT_MAGIC || stored_units as usize != units {
            return invalid("the footer of a segment", stored_units.into());
        }
        let computed = checksum_for(uuid, COLUMNS_LOG, first.0, table);
        if stored != computed {
            return Err(FormatError::Checksum {
                what: "the directory of a segment",
                stored,
                computed,
            });
        }
        let starts: Vec<u64> = table
            .chunks_exact(8)
            .map(|place| u64_at(place, 0))
            .collect();
        let end = file_bytes.saturating_sub(need as u64);
        let ascend = starts.is_sorted() && starts.last().is_some_and(|last| *last <= end);
        if !ascend {
            return invalid("a place in the directory of a segment", end);
        }
        Ok(SegmentDirectory { starts })
    }
}
