//! One entry of losses that are not in the log yet: it is gathered in memory (`mod.rs`) and kept in the file (`slots.rs`).

use loom_engine::{Address, SourceId, Timestamp};
use serde::{Deserialize, Serialize};

/// What was lost of one source for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    /// None: the client named a source that does not exist.
    pub(super) source: Option<SourceId>,
    /// A `LossReason`.
    pub(super) reason: u8,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) records: u64,
    /// None: nobody knows.
    pub(super) bytes: Option<u64>,
    pub(super) detail: String,
    /// Where its record stands, or would if a kill came between.
    pub(super) recorded_at: Option<Address>,
}

impl Entry {
    pub(super) fn without_detail(&self) -> Entry {
        Entry {
            detail: String::new(),
            ..self.clone()
        }
    }
}
