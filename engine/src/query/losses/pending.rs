//! Losses that have no record yet, and the log with the records of the others, as of one instant.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::PendingLoss;
use crate::query::poll::Poll;
use crate::query::snapshot::Snapshot;
use crate::schema::Catalog;

/// Every loss is in `snapshot` or in `pending`, never in both.
pub(in crate::query) struct Ledger {
    /// Holds the records of losses.
    pub snapshot: Snapshot,
    pub pending: Vec<PendingLoss>,
    /// Defines the source of each pending loss.
    pub catalog: Arc<Catalog>,
    /// The error if the table of pending losses cannot be read.
    pub unreadable: Option<Error>,
}

impl Snapshot {
    /// The ledger as it is now, even while a writer records losses: no loss that was kept before this call is missed, and none counts
    /// twice.
    ///
    /// The table is read after the log's tail. So a row without a mark has no record below that tail, and a row that is marked with an
    /// address has its record there if the address lies below the tail. A row that left the table in between had been published, but
    /// perhaps above the tail. The table holds the address below which all such records stand, and the log is read up to there, without
    /// records that came later.
    pub(super) fn ledger_now(&self, poll: &Poll<'_>) -> Result<Ledger> {
        poll.check()?;
        self.directory().snapshot()?.ledger()
    }

    /// The ledger as of this snapshot or shortly after. The catalog is read last, because a source is defined before a loss of it is kept.
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
