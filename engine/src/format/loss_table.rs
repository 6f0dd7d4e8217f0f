//! The table of pending losses: records that were refused or dropped and have no loss record in the log yet, one row for each cause (FORMAT.md, *Pending
//! losses*).
//!
//! It has a fixed length. Staging holds two tables that are written alternately; a slot of `durable` holds one after a clean stop.

use super::bytes::{i64_at, u16_at, u32_at, u64_at};
use super::checksum::{LOSSES_LOG, checksum_for};
use crate::types::{Address, SourceId, Timestamp};

pub const LOSS_ROWS_MAX: usize = 64;
const HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 48;
pub const LOSS_TABLE_BYTES: usize = HEADER_BYTES + LOSS_ROWS_MAX * ROW_BYTES;
/// The checksum covers all bytes behind it.
const CHECKSUM_BYTES: usize = 4;

const RECORDS_KNOWN: u8 = 1;
const BYTES_KNOWN: u8 = 2;
const IS_RECORDED: u8 = 4;

/// A loss of one source for one reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PendingLoss {
    /// `None`: no source, or several.
    pub source: Option<SourceId>,
    /// Number of a `LossReason`; 0 where the reason is unknown.
    pub reason: u8,
    /// The first and last arrival of the lost records.
    pub from: Timestamp,
    pub to: Timestamp,
    /// `None`: unknown.
    pub records: Option<u64>,
    /// Payload bytes; `None`: unknown.
    pub bytes: Option<u64>,
    /// Address of its loss record, once it is appended. The loss counts as recorded when that address is published.
    pub recorded_at: Option<Address>,
}

impl PendingLoss {
    /// A loss that may have happened, with no details known.
    pub const UNKNOWN: PendingLoss = PendingLoss {
        source: None,
        reason: 0,
        from: Timestamp::MIN,
        to: Timestamp::MAX,
        records: None,
        bytes: None,
        recorded_at: None,
    };

    /// Reports whether the log up to `tail` holds its record.
    pub fn is_recorded_below(&self, tail: Address) -> bool {
        self.recorded_at.is_some_and(|at| at < tail)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LossTable {
    pub rows: Vec<PendingLoss>,
    /// The records of all removed rows lie below this address. A reader that stops at a lower address misses some of them.
    pub recorded_below: Address,
}

impl LossTable {
    /// Returns the rows without a record in the log up to `tail`, ready to be recorded.
    pub fn unrecorded(&self, tail: Address) -> Vec<PendingLoss> {
        let rows = self.rows.iter().filter(|row| !row.is_recorded_below(tail));
        rows.map(|row| PendingLoss {
            recorded_at: None,
            ..*row
        })
        .collect()
    }

    /// Encodes the table under this number.
    ///
    /// # Panics
    /// Panics if there are more than `LOSS_ROWS_MAX` rows.
    pub fn encode(&self, uuid: &[u8; 16], number: u64) -> Vec<u8> {
        let rows = self.rows.len();
        assert!(
            rows <= LOSS_ROWS_MAX,
            "{rows} rows, a table has {LOSS_ROWS_MAX}"
        );
        let mut body = Vec::with_capacity(LOSS_TABLE_BYTES - CHECKSUM_BYTES);
        body.extend_from_slice(&(rows as u32).to_le_bytes());
        body.extend_from_slice(&number.to_le_bytes());
        body.extend_from_slice(&self.recorded_below.0.to_le_bytes());
        body.resize(HEADER_BYTES - CHECKSUM_BYTES, 0);
        self.rows.iter().for_each(|row| encode_row(row, &mut body));
        body.resize(LOSS_TABLE_BYTES - CHECKSUM_BYTES, 0);
        let sum = checksum_for(uuid, LOSSES_LOG, number, &body).to_le_bytes();
        let mut table = Vec::with_capacity(LOSS_TABLE_BYTES);
        table.extend_from_slice(&sum);
        table.extend_from_slice(&body);
        table
    }

    /// Returns `None` if the bytes do not verify as the table of this directory and number.
    pub fn decode(uuid: &[u8; 16], number: u64, bytes: &[u8]) -> Option<LossTable> {
        let bytes = bytes.first_chunk::<LOSS_TABLE_BYTES>()?;
        let (sum, body) = bytes.split_first_chunk::<CHECKSUM_BYTES>()?;
        let verifies = u32::from_le_bytes(*sum) == checksum_for(uuid, LOSSES_LOG, number, body);
        let (header, rows) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let count = u32_at(header, CHECKSUM_BYTES) as usize;
        if !verifies || u64_at(header, 8) != number || count > LOSS_ROWS_MAX {
            return None;
        }
        let (rows, _) = rows.as_chunks::<ROW_BYTES>();
        Some(LossTable {
            rows: rows.iter().take(count).map(decode_row).collect(),
            recorded_below: Address(u64_at(header, 16)),
        })
    }
}

fn encode_row(row: &PendingLoss, out: &mut Vec<u8>) {
    let mut flags = 0;
    for (flag, is_set) in [
        (RECORDS_KNOWN, row.records.is_some()),
        (BYTES_KNOWN, row.bytes.is_some()),
        (IS_RECORDED, row.recorded_at.is_some()),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    out.extend_from_slice(&row.source.map_or(0, |source| source.0).to_le_bytes());
    out.extend_from_slice(&[row.reason, flags, 0, 0, 0, 0]);
    out.extend_from_slice(&row.from.0.to_le_bytes());
    out.extend_from_slice(&row.to.0.to_le_bytes());
    out.extend_from_slice(&row.records.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&row.bytes.unwrap_or(0).to_le_bytes());
    out.extend_from_slice(&row.recorded_at.map_or(0, |at| at.0).to_le_bytes());
}

fn decode_row(row: &[u8; ROW_BYTES]) -> PendingLoss {
    let source = SourceId(u16_at(row, 0));
    let [_, _, reason, flags, ..] = *row;
    let if_set = |flag, value| (flags & flag != 0).then_some(value);
    PendingLoss {
        source: (source.0 != 0).then_some(source),
        reason,
        from: Timestamp(i64_at(row, 8)),
        to: Timestamp(i64_at(row, 16)),
        records: if_set(RECORDS_KNOWN, u64_at(row, 24)),
        bytes: if_set(BYTES_KNOWN, u64_at(row, 32)),
        recorded_at: if_set(IS_RECORDED, u64_at(row, 40)).map(Address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> PendingLoss {
        PendingLoss {
            source: (!number.is_multiple_of(3)).then_some(SourceId(number as u16)),
            reason: number as u8,
            from: Timestamp(-5),
            to: Timestamp(i64::MAX),
            records: (!number.is_multiple_of(2)).then_some(u64::MAX - number),
            bytes: number.is_multiple_of(2).then_some(0),
            recorded_at: (number > 10).then_some(Address(8 * number)),
        }
    }

    #[test]
    fn a_table_survives_the_round_trip_and_any_changed_byte_is_found() {
        for rows in [0, 1, 5, LOSS_ROWS_MAX as u64] {
            let table = LossTable {
                rows: (0..rows).map(row).collect(),
                recorded_below: Address(1 << 40),
            };
            let bytes = table.encode(&[7; 16], 9);
            assert_eq!(bytes.len(), LOSS_TABLE_BYTES);
            assert_eq!(LossTable::decode(&[7; 16], 9, &bytes), Some(table));
            assert_eq!(LossTable::decode(&[8; 16], 9, &bytes), None);
            assert_eq!(LossTable::decode(&[7; 16], 11, &bytes), None);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x20;
                assert_eq!(LossTable::decode(&[7; 16], 9, &damaged), None, "byte {at}");
                assert_eq!(LossTable::decode(&[7; 16], 9, &bytes[..at]), None);
            }
        }
    }

    #[test]
    fn a_loss_with_a_record_in_the_log_is_not_recorded_again() {
        let table = LossTable {
            rows: vec![row(1), row(11), row(12), row(13)],
            recorded_below: Address::ZERO,
        };
        let left: Vec<u8> = table
            .unrecorded(Address(8 * 12))
            .iter()
            .map(|row| {
                assert_eq!(row.recorded_at, None);
                row.reason
            })
            .collect();
        assert_eq!(left, [1, 12, 13]);
    }
}
