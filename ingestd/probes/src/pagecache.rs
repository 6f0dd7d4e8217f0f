//! Records folios that are added to the page cache or deleted from it.

use aya::include_bytes_aligned;

use crate::probe::{Hook, Payloads};
use crate::{Cgroup, Probe, ProbeError};

/// The length of a payload, with the own time.
const PAYLOAD_BYTES: usize = 61;

/// Selects all events of the page cache, except those of this process.
#[derive(Copy, Clone, Debug, Default)]
pub struct Pagecache {
    /// Only events of threads in this cgroup, or in one below it.
    pub cgroup: Option<Cgroup>,
}

impl Pagecache {
    pub const PAYLOAD_BYTES: u16 = PAYLOAD_BYTES as u16;

    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(self) -> Result<Probe, ProbeError> {
        Probe::open(
            "'pagecache'",
            include_bytes_aligned!("../bpf/pagecache.o"),
            Payloads::Fixed {
                bytes: PAYLOAD_BYTES,
            },
            &Cgroup::globals(self.cgroup),
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
