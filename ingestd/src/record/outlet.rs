//! The way of one capture into its source: a connection to the daemon, and the tally of what went there.

use std::sync::Arc;

use anyhow::Context;
use loom_engine::{SourceId, TimeRange};

use super::tally::Tally;
use crate::client::{Client, ClientError};
use crate::protocol::{Counts, Shape};

/// Takes the payloads of one source.
pub struct Outlet {
    client: Client,
    source: SourceId,
    name: String,
    tally: Arc<Tally>,
}

impl Outlet {
    pub(super) fn new(client: Client, source: SourceId, name: &str, tally: Arc<Tally>) -> Outlet {
        Outlet {
            client,
            source,
            name: name.to_owned(),
            tally,
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

    /// Hands over a batch that is worth a frame of its own, without waiting for more.
    pub(super) fn push_at_once(
        &self,
        shape: Shape,
        payloads: &[u8],
        records: u64,
    ) -> anyhow::Result<()> {
        let sent = self.client.send_batch(self.source, shape, payloads);
        self.or_fail(sent)?;
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
        }
        Ok(())
    }

    /// Returns when all of it is durable.
    pub(super) fn finish(&self) -> anyhow::Result<Counts> {
        let synced = self.client.sync_durable();
        Ok(self.or_fail(synced)?.counts)
    }

    /// A connection that failed ends the recording.
    fn or_fail<T>(&self, result: Result<T, ClientError>) -> anyhow::Result<T> {
        if result.is_err() {
            self.tally.fail();
        }
        result.context("it cannot be recorded any further")
    }
}
