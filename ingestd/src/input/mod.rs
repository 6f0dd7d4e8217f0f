//! Inputs: files and pipes of many formats, all turned into framed payloads of one source.
//!
//! The modules stand in the order in which data flows. `open` ties them together; the command line calls it.
//!
//! A row that cannot be kept is refused by its number with the reason, and costs no other row.

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

/// The most rows of one batch, of formats that are read by rows.
const BATCH_ROWS: usize = 16_384;
/// The most bytes of one batch, of formats that are read by bytes: its columns stay in the caches, and in memory that the allocator keeps.
const BATCH_BYTES: usize = 256 << 10;
/// A row of text that does not end before this is refused.
const ROW_BYTES_MAX: usize = 4 << 20;

/// One open file or pipe of one format.
trait Reader: Send {
    /// What it holds, by its own names.
    fn columns(&self) -> &[Column];

    /// Which columns `next` is to give, in this order. Called once, before `next`.
    fn select(&mut self, wanted: Vec<Wanted>);

    /// The next rows; waits where none have come yet. `None` at the end.
    fn next(&mut self) -> anyhow::Result<Option<Rows>>;

    /// How much of it was read, from 0 to 1, where that is known.
    fn fraction(&self) -> Option<f64>;

    /// Notes for the user since the last call.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it may have rows: the columns of an input without any are no fields. Called before `next`; waits where nothing has come yet.
    fn may_have_rows(&mut self) -> bool {
        true
    }

    /// What messages call a row.
    fn row_noun(&self) -> &'static str {
        "row"
    }
}

/// A column that a field is made of.
#[derive(Copy, Clone, Debug)]
struct Wanted {
    /// Position among the reader's columns.
    column: usize,
    /// Values of JSON stay the JSON that they are: the field is JSON, or takes no string for a number or a boolean.
    as_json: bool,
    /// An empty text stands for NULL, where a format cannot say so otherwise.
    empty_is_null: bool,
}
