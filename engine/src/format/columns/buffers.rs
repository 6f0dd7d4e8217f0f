//! The buffers into which a thread decodes one unit after the other.

use std::ops::Range;

use super::codec::Run;
use super::rows::Rows;
use super::words::Words;

/// The decoded rows of a unit. The next unit reuses the memory.
#[derive(Debug, Default)]
pub struct Buffers {
    /// Indexed by the slots of the streams.
    pub(super) decoded: Vec<Rows>,
    pub(super) order: Vec<Run>,
    /// The rows of each stream in a chunk.
    pub(super) ranges: Vec<Range<usize>>,
    /// The addresses of the rows that [`Unit::columns`](super::Unit::columns) found last; `None` if they are not wanted.
    pub(super) addresses: Option<Vec<u64>>,
    /// The selected ones of the found rows.
    pub(super) selected: Rows,
    /// The numbers of these rows in their group.
    pub(super) rows: Vec<u32>,
    /// The places of each stream's payloads in the chunk.
    pub(super) places: Vec<Vec<u32>>,
    /// The slot whose rows [`Unit::columns`](super::Unit::columns) found last, and their range among its decoded rows. Without a slot they are the selected
    /// rows.
    pub(super) found: Option<(Option<usize>, Range<usize>)>,
    /// Words in which payloads are put together.
    pub(super) words: Words,
    /// Bytes left for the decoded tails of streams, which all together are part of the unit's chunks.
    pub(super) tail_room: usize,
}

impl Buffers {
    /// Prepares the buffers for a unit with `slots` slots, none of them decoded.
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
