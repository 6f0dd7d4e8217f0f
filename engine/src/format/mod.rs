//! Pure encoding and decoding of the bytes that `FORMAT.md` specifies: records and chunks, nodes of the chunk index, entries of the timestamp index, lines of
//! the catalog, checksums.
//!
//! Nothing here does I/O or knows what a payload means. Decoders accept any bytes and return an error, never a panic.

// Shared by all modules.
mod bytes;
mod checksum;

// The record log.
mod chunk;
mod columns;
mod record;
mod runs;
mod tail_piece;

// The chunk index.
mod index_block;
mod narrow;
mod node;
mod node_encoding;
mod summary;

// The timestamp index, the catalog and pending losses.
mod line;
mod lookup;
mod loss_table;
mod time_entry;
mod words;

// Texts that other programs read too.
mod object_line;

pub use bytes::FormatError;
pub use checksum::{LOSSES_LOG, SLOT_LOG, checksum, checksum_for, crc32c};
pub use chunk::{
    ChunkBuilder, PushOutcome, RecordIter, has_trailer, put_trailer, verify_chunk, verify_part,
};
pub use columns::{
    Buffers, FieldPlace, NumberRange, PartColumns, Piece, PieceKind, RangeTotals,
    SEGMENT_UNITS_MOST, SegmentDirectory, SegmentZones, SourceZones, StreamRows, Take, Template,
    UNIT_CHUNKS, UNIT_HEADER_BYTES, Unit, UnitEncoder, UnitHeader, UnitPart, Wanted, Zone,
    ZonesBuilder, put_raw_unit, text_key,
};
pub use index_block::{BinEntry, IndexBlock};
pub use line::{
    LINE_PREFIX_BYTES, REWRITTEN_BYTES_MAX, Rewritten, encode_line, line_content, merge_lines,
};
pub use lookup::{
    LOOKUP_CHUNKS, LookedUp, LookupBuilder, LookupField, LookupOf, LookupRow, LookupTable,
    UnitKeys, hash_of_bytes, hash_of_key,
};
pub use loss_table::{LOSS_ROWS_MAX, LOSS_TABLE_BYTES, LossTable, PendingLoss};
pub use node::{NODE_BYTES_MAX, Node, SourceStats};
pub use node_encoding::encode_node;
pub use object_line::{seal_object, sealed_objects};
pub use record::{
    CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CHUNK_HEADER_BYTES, CHUNK_TRAILER_BYTES, LOST_ENTRY,
    RECORD_HEADER_BYTES, RawRecord, RecordHeader, longest_payload, record_bytes,
};
pub use runs::{Run, walk_runs};
pub use summary::{
    Bin, BinStats, ChildStats, IndexChild, IndexSummary, NodeSummary, Reuse, SourceSummary,
    TOP_VALUES, Top,
};
pub use tail_piece::{TAIL_PIECE_HEADER_BYTES, TailPiece};
pub use time_entry::{
    FANOUT, TIME_ENTRY_BYTES, TimeEntry, complete_chunks, entries_before, entry_of,
};
pub use words::{Case, each_word, words_within};
