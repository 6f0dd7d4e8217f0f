//! The page cache: a record for each folio that is added to it or deleted from it.

use aya::include_bytes_aligned;

use crate::probe::Hook;
use crate::{Probe, ProbeError};

/// Bytes of a payload, own time included.
const PAYLOAD_BYTES: usize = 53;

/// All events of the page cache, except those of this process.
#[derive(Copy, Clone, Debug, Default)]
pub struct Pagecache;

impl Pagecache {
    pub const PAYLOAD_BYTES: u16 = PAYLOAD_BYTES as u16;

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(self) -> Result<Probe, ProbeError> {
        Probe::open(
            "'pagecache'",
            include_bytes_aligned!("../bpf/pagecache.o"),
            PAYLOAD_BYTES,
            &[],
            &[
                (
                    "page_add",
                    Hook::Tracepoint("filemap", "mm_filemap_add_to_page_cache"),
                ),
                (
                    "page_delete",
                    Hook::Tracepoint("filemap", "mm_filemap_delete_from_page_cache"),
                ),
            ],
        )
    }
}
