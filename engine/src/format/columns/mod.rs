//! Records column by column: the units of a segment of the record log, and the directory at its end (FORMAT.md, *Units*).
//!
//! A unit restores its chunks byte for byte. It describes its own content, so decoding needs no schema, and encoding needs only the pieces of a payload.

mod bits;
mod buffers;
mod bytes;
mod chunk_rows;
mod codec;
mod encode;
mod families;
mod gather;
mod groups;
mod head;
mod number_range;
mod part;
mod raw;
mod rows;
mod segment;
mod segment_zones;
mod shared_strings;
mod split;
mod stream;
mod tail;
mod tail_writer;
mod template;
#[cfg(test)]
mod tests;
mod unit;
mod words;
mod zone;

pub(super) use bits::{Packed, SLACK_BYTES as PACKED_SLACK_BYTES, pack, width_of};
pub use buffers::Buffers;
pub use encode::UnitEncoder;
pub use head::{UNIT_HEADER_BYTES, UnitHeader};
pub use number_range::{NumberRange, RangeTotals};
pub use part::{PartColumns, UnitPart};
pub use raw::put_raw_unit;
pub use rows::{StreamRows, Wanted};
pub use segment::{SEGMENT_UNITS_MOST, SegmentDirectory};
pub use segment_zones::{SegmentZones, SourceZones, ZonesBuilder};
pub use template::{Piece, PieceKind, Template};
pub use unit::{Take, Unit};
pub use zone::{FieldPlace, Zone, text_key};

/// Chunks of a unit.
pub const UNIT_CHUNKS: u64 = 16;
/// The log number under which units and directories are checksummed.
const COLUMNS_LOG: u8 = 5;

/// Reports whether columns pay off: they take less than three quarters of the rows' bytes.
fn saves_enough(column_bytes: u64, rows_bytes: u64) -> bool {
    column_bytes * 4 < rows_bytes * 3
}
