//! The place in a ring of records that are on their way into the log.

use std::sync::Arc;

use loom_client::ring::Taken;

use super::Reserved;

/// Keeps the place until the log has the records, and the count of the ring's memory too.
pub(in crate::daemon) struct Place {
    // The memory goes before its count.
    taken: Taken,
    _reserved: Arc<Reserved>,
}

impl Place {
    pub(super) fn new(taken: Taken, reserved: &Arc<Reserved>) -> Place {
        Place {
            taken,
            _reserved: Arc::clone(reserved),
        }
    }

    /// From here on the log may have the records.
    pub(in crate::daemon) fn storing(&self) {
        self.taken.storing();
    }

    /// The log has them.
    pub(in crate::daemon) fn stored(self) {
        self.taken.stored();
    }
}
