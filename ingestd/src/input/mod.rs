//! Reads files and pipes of several formats, and turns them into framed payloads of one source.
//!
//! The modules stand in the order in which data flows. `open` ties them together; the command line calls it.
//!
//! An invalid row is refused with its number and the reason, and does not affect other rows.

// Bytes, and the format that they have.
mod blocks;
mod compression;
mod format;
mod members;
// A reader for each format turns bytes into columns.
mod arrow_ipc;
mod csv;
mod interfaces;
mod json;
mod packet;
mod panics;
mod parquet;
mod pcap;
mod text;
mod text_rows;
mod usual_time;
// Columns get names and types, once for all files.
mod columns;
mod duckdb;
mod naming;
mod plan;
// Columns become payloads, some rows at a time.
mod cells;
mod framer;
mod nested;
mod own_time;
mod rows;
mod time_unit;
mod unlikely;
mod unpacking;
// One file after the other.
mod files;

#[cfg(test)]
mod damaged_input;
#[cfg(test)]
mod foreign;
#[cfg(test)]
mod testing;

pub use blocks::is_stream;
use columns::Column;
pub use files::{Input, open};
pub use format::Format;
pub use interfaces::Interfaces;
pub use loom_sink::InputBatch;
pub use own_time::TimeForm;
pub use plan::{CsvOptions, LoadOptions};
pub use rows::Refusals;
use rows::Rows;
pub use text::parse_timestamp_ns;
pub use time_unit::TimeUnit;

/// The limit of rows in a batch, for formats that are read by rows.
const BATCH_ROWS: usize = 16_384;
/// The limit of bytes in a batch, for formats that are read by bytes. The columns of a batch fit the caches, and the allocator reuses their memory.
const BATCH_BYTES: usize = 256 << 10;
/// The longest row of text.
const ROW_BYTES_MAX: usize = 4 << 20;

/// One open file or pipe of one format.
trait Reader: Send {
    /// The columns of the input, with their own names.
    fn columns(&self) -> &[Column];

    /// Selects the columns that `next` returns, in this order. Called once, before `next`.
    fn select(&mut self, wanted: Vec<Wanted>);

    /// The next rows, or `None` at the end. Waits for a pipe.
    fn next(&mut self) -> anyhow::Result<Option<Rows>>;

    /// The part that was read, from 0 to 1, if it is known.
    fn fraction(&self) -> Option<f64>;

    /// The new notes for the user.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the input may have rows: an input without rows adds no fields to a source. Called before `next`; waits for a pipe.
    fn may_have_rows(&mut self) -> bool {
        true
    }

    /// The name of a row in messages.
    fn row_noun(&self) -> &'static str {
        "row"
    }
}

/// A column for a field.
#[derive(Copy, Clone, Debug)]
struct Wanted {
    /// The position in the reader's columns.
    column: usize,
    /// Keep the JSON of a value: the field is JSON, or accepts no string for a number or a boolean.
    as_json: bool,
    /// An empty text is NULL, because the format has no other NULL.
    empty_is_null: bool,
}
