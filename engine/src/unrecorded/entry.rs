//! One entry of losses that are not in the log yet: a writer gathers it in memory and keeps it in the file (`slots.rs`).

use serde::{Deserialize, Serialize};

use crate::types::{Address, SourceId, Timestamp};

/// What was lost of one source for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// None: the client named a source that does not exist.
    pub source: Option<SourceId>,
    /// A `LossReason`.
    pub reason: u8,
    pub from: Timestamp,
    pub to: Timestamp,
    /// None: nobody knows.
    pub records: Option<u64>,
    /// None: nobody knows.
    pub bytes: Option<u64>,
    pub detail: String,
    /// Where its record stands, or would if a kill came between.
    pub recorded_at: Option<Address>,
}

impl Entry {
    /// Whether this is an earlier or later state of the other: its number may have grown, and its mark come or gone.
    pub fn is_same(&self, other: &Entry) -> bool {
        (self.source, self.reason, self.from) == (other.source, other.reason, other.from)
    }

    pub fn without_detail(&self) -> Entry {
        Entry {
            detail: String::new(),
            ..self.clone()
        }
    }
}
