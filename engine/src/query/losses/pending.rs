//! Losses that have no record yet, and the log that holds the records of the others, as of one instant.

use crate::error::{Error, Result};
use crate::format::PendingLoss;
use crate::query::poll::Poll;
use crate::query::snapshot::Snapshot;
use crate::types::LogKind;

/// Rows leave the table about once a second, and one attempt takes far less.
const ATTEMPTS: usize = 64;

/// Every loss is in one of the two.
pub(super) struct Ledger {
    /// Holds the records of losses.
    pub snapshot: Snapshot,
    pub pending: Vec<PendingLoss>,
    /// Why the table of pending losses cannot be read, if so.
    pub unreadable: Option<Error>,
}

impl Snapshot {
    /// The ledger as it is now, beside a writer that records meanwhile: no loss that was kept when this was called is missed, and none counts
    /// twice.
    ///
    /// The table is read after the log. So a row that has no mark yet has no record below the log's tail, and one that is marked with an
    /// address has it there if the address lies below. A row that left the table in between had been published before, but perhaps above the tail:
    /// the table says below which address all of these records stand, and if that is above the tail, the log is read again.
    pub(super) fn ledger_now(&self, poll: &Poll<'_>) -> Result<Ledger> {
        let directory = self.directory();
        for _ in 0..ATTEMPTS {
            poll.check()?;
            let snapshot = directory.snapshot()?;
            let tail = snapshot.logs().tail(LogKind::Records);
            let (pending, unreadable) = match directory.reader().losses() {
                Ok(table) if table.recorded_below > tail => continue,
                Ok(table) => (table.unrecorded(tail), None),
                Err(error) => (Vec::new(), Some(error)),
            };
            return Ok(Ledger {
                snapshot,
                pending,
                unreadable,
            });
        }
        Err(Error::Query(
            "losses are recorded faster than they can be listed; ask again".to_owned(),
        ))
    }
}
