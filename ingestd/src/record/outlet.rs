//! The way of one capture into its source: a connection to the daemon, and the tally of what went there.

use std::cell::Cell;
use std::sync::Arc;

use anyhow::Context;
use loom_engine::{SourceId, TimeRange};

use super::tally::Tally;
use crate::client::{Client, ClientError};
use crate::counted;
use crate::protocol::{Counts, Shape};

/// Takes the payloads of one source.
pub struct Outlet {
    client: Client,
    source: SourceId,
    name: String,
    tally: Arc<Tally>,
    /// Rows that the daemon counts as refused and that never reached it.
    noted: Cell<u64>,
}

impl Outlet {
    pub(super) fn new(client: Client, source: SourceId, name: &str, tally: Arc<Tally>) -> Outlet {
        Outlet {
            client,
            source,
            name: name.to_owned(),
            tally,
            noted: Cell::new(0),
        }
    }

    /// The name of the source.
    pub(super) fn source(&self) -> &str {
        &self.name
    }

    /// Hands over payloads.
    pub(super) fn push(&self, shape: Shape, payloads: &[u8], records: u64) -> anyhow::Result<()> {
        let pushed = self.client.push_batch(self.source, shape, payloads);
        self.or_fail(pushed)?;
        self.tally.add(records);
        Ok(())
    }

    /// Enters records in the ledger that were lost before they reached Loom, with own times in `span`.
    pub(super) fn lost(&self, records: u64, span: TimeRange, why: &str) -> anyhow::Result<()> {
        if records > 0 {
            self.tally.add_lost(records);
            let reported = self.client.report_lost(&self.name, records, span, why);
            self.or_fail(reported)?;
        }
        Ok(())
    }

    /// Enters rows that are no records in the ledger.
    pub(super) fn refused(&self, rows: u32, why: &str) -> anyhow::Result<()> {
        if rows > 0 {
            self.or_fail(self.client.report_refused(&self.name, rows, why))?;
            self.noted.set(self.noted.get() + u64::from(rows));
        }
        Ok(())
    }

    /// Returns when all of it is durable, and says why the daemon refused records of it, if it did.
    pub(super) fn finish(&self) -> anyhow::Result<Counts> {
        let synced = self.or_fail(self.client.sync_durable())?;
        let refused = synced.counts.refused.saturating_sub(self.noted.get());
        if refused > 0 {
            let (name, records, why) = (&self.name, counted(refused, "record"), synced.reason);
            tracing::warn!("source '{name}': the daemon refused {records}; the last one: {why}");
        }
        Ok(synced.counts)
    }

    /// A connection that failed ends the recording.
    fn or_fail<T>(&self, result: Result<T, ClientError>) -> anyhow::Result<T> {
        if result.is_err() {
            self.tally.fail();
        }
        result.context("it cannot be recorded any further")
    }
}
