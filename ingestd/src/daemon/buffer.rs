//! What a socket is read into, and what was found in it. Buffers go round: connection, writer thread, connection.

use std::ops::Range;

use loom_engine::SourceId;

use crate::protocol::{Depth, FRAME_BYTES_MAX, RequestId, Shape};

pub(super) struct Buffer {
    pub(super) bytes: Box<[u8]>,
    pub(super) items: Vec<Item>,
}

/// One frame in a buffer.
pub(super) enum Item {
    Push {
        source: SourceId,
        shape: Shape,
        range: Range<usize>,
        records: u64,
    },
    Sync {
        request: RequestId,
        depth: Depth,
    },
}

impl Buffer {
    pub(super) fn new() -> Self {
        Buffer {
            bytes: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            items: Vec::new(),
        }
    }
}
