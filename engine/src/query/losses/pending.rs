//! Losses that have no record yet, and the log that holds the records of the others, as of one instant.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::PendingLoss;
use crate::query::poll::Poll;
use crate::query::snapshot::Snapshot;
use crate::schema::Catalog;

/// Every loss is in one of the two.
pub(in crate::query) struct Ledger {
    /// Holds the records of losses.
    pub snapshot: Snapshot,
    pub pending: Vec<PendingLoss>,
    /// Has the source of each pending loss.
    pub catalog: Arc<Catalog>,
    /// Why the table of pending losses cannot be read, if so.
    pub unreadable: Option<Error>,
}

impl Snapshot {
    /// The ledger as it is now, beside a writer that records meanwhile: no loss that was kept when this was called is missed, and none counts
    /// twice.
    ///
    /// The table is read after the log's tail. So a row that has no mark yet has no record below that tail, and one that is marked with an
    /// address has it there if the address lies below. A row that left the table in between had been published before, but perhaps above the
    /// tail: the table says below which address all of these records stand, and the log is read up to there, which leaves out what was
    /// recorded since.
    pub(super) fn ledger_now(&self, poll: &Poll<'_>) -> Result<Ledger> {
        poll.check()?;
        self.directory().snapshot()?.ledger()
    }

    /// The ledger, once this snapshot is taken. The catalog is read last: a source is defined before a loss of it is kept.
    pub(in crate::query) fn ledger(self) -> Result<Ledger> {
        let directory = Arc::clone(self.directory());
        let mut snapshot = self;
        let (pending, unreadable) = match directory.reader().losses() {
            Ok(table) => {
                if table.recorded_below > snapshot.logs().position() {
                    snapshot = directory.snapshot_at(table.recorded_below.0)?;
                }
                (table.unrecorded(snapshot.logs().position()), None)
            }
            Err(error) => (Vec::new(), Some(error)),
        };
        Ok(Ledger {
            snapshot,
            pending,
            catalog: directory.catalog()?,
            unreadable,
        })
    }
}
