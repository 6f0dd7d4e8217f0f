//! What a thread decodes units into, one after the other.

use std::ops::Range;

use super::codec::Run;
use super::rows::Rows;
use super::words::Words;

/// The rows of a unit, as far as they are decoded. The memory serves the next unit.
#[derive(Debug, Default)]
pub struct Buffers {
    /// By the slots of the streams.
    pub(super) decoded: Vec<Rows>,
    pub(super) order: Vec<Run>,
    /// The rows of each stream in a chunk.
    pub(super) ranges: Vec<Range<usize>>,
    /// Of the rows that [`Unit::columns`](super::Unit::columns) found last; `None` if they are not wanted.
    pub(super) addresses: Option<Vec<u64>>,
    /// Those of the found rows that were selected.
    pub(super) selected: Rows,
    /// Which rows of a group those were.
    pub(super) rows: Vec<u32>,
    /// Where the payloads stand that the chunk holds of each stream.
    pub(super) places: Vec<Vec<u32>>,
    /// The slot whose rows [`Unit::columns`](super::Unit::columns) found last, and which of its decoded rows they are. No slot: they are the selected ones.
    pub(super) found: Option<(Option<usize>, Range<usize>)>,
    /// Of the payloads that are put together.
    pub(super) words: Words,
    /// Bytes that the tails of streams may take besides those that are decoded: all together are part of its chunks.
    pub(super) tail_room: usize,
}

impl Buffers {
    /// For a unit of so many slots, of which nothing is decoded yet.
    pub(super) fn reset(&mut self, slots: usize, tail_room: usize) {
        for rows in &mut self.decoded {
            rows.forget(&mut self.tail_room);
        }
        self.decoded.resize_with(slots, Rows::default);
        self.addresses = None;
        self.found = None;
        self.tail_room = tail_room;
    }
}
