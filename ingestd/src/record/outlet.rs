//! Stores the payloads of one capture, through a connection that outlives its daemon, and keeps the tally.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use anyhow::Context;
use loom_engine::{SourceId, TimeRange};

use super::tally::Tally;
use crate::client::{LastingClient, Outcome};
use crate::counted;
use crate::daemon::Inlet;
use crate::protocol::{Counts, LostCause, Shape};

pub struct Outlet {
    client: RefCell<LastingClient>,
    /// The direct way to the writer, if this process is the daemon.
    inlet: Option<RefCell<Inlet>>,
    source: SourceId,
    name: String,
    tally: Arc<Tally>,
    /// Rows in the ledger that were never sent to the daemon.
    noted: Cell<u64>,
}

impl Outlet {
    pub(super) fn new(
        client: LastingClient,
        inlet: Option<Inlet>,
        source: SourceId,
        name: &str,
        tally: Arc<Tally>,
    ) -> Outlet {
        Outlet {
            client: RefCell::new(client),
            inlet: inlet.map(RefCell::new),
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

    pub(super) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// Pushes payloads.
    pub(super) fn push(&self, shape: Shape, payloads: &[u8], records: u64) -> anyhow::Result<()> {
        let pushed = (self.client.borrow_mut()).push_batch(self.source, shape, payloads);
        self.or_fail(pushed)?;
        self.tally.add(records);
        Ok(())
    }

    /// Pushes a batch of payloads without waiting for more.
    pub(super) fn push_at_once(&self, shape: Shape, payloads: &[u8]) -> anyhow::Result<()> {
        if let (Some(inlet), Shape::Fixed { record_bytes }) = (&self.inlet, shape) {
            let pushed = inlet.borrow_mut().push(self.source, record_bytes, payloads);
            self.or_fail(pushed)?;
        } else {
            let mut client = self.client.borrow_mut();
            let pushed = client.push_batch(self.source, shape, payloads);
            self.or_fail(pushed.and_then(|()| client.flush()))?;
        }
        let records = shape.records(payloads);
        self.tally
            .add(records.expect("a capture hands over whole payloads"));
        Ok(())
    }

    /// Returns when everything that was pushed is visible to queries, or unsure.
    pub(super) fn sync(&self) -> anyhow::Result<()> {
        let synced = self.client.borrow_mut().sync();
        self.or_fail(synced).map(drop)
    }

    /// Enters records in the ledger that were lost before they reached Loom. Their own times are in `span`.
    pub(super) fn lost(&self, records: u64, span: TimeRange, why: &str) -> anyhow::Result<()> {
        self.tally.add_lost(records);
        self.report(LostCause::Kernel, records, span, why)
    }

    /// Enters records in the ledger that were left out to save time.
    pub(super) fn sampled(&self, records: u64, span: TimeRange, why: &str) -> anyhow::Result<()> {
        self.tally.add_sampled(records);
        self.report(LostCause::Sampled, records, span, why)
    }

    fn report(
        &self,
        cause: LostCause,
        records: u64,
        span: TimeRange,
        why: &str,
    ) -> anyhow::Result<()> {
        if records == 0 {
            return Ok(());
        }
        let mut client = self.client.borrow_mut();
        self.or_fail(client.report_lost(cause, &self.name, records, span, why))
    }

    /// Enters rows in the ledger that could not become records.
    pub(super) fn refused(&self, rows: u32, why: &str) -> anyhow::Result<()> {
        if rows > 0 {
            let reported = (self.client.borrow_mut()).report_refused(&self.name, rows, why);
            self.or_fail(reported)?;
            self.noted.set(self.noted.get() + u64::from(rows));
        }
        Ok(())
    }

    /// Returns when everything is durable, or with the reason why it is not, and with the fate of the records as far as it is known. Reports why the
    /// daemon refused records, if it did.
    pub(super) fn finish(mut self) -> (anyhow::Result<()>, Option<Outcome>) {
        let (mut counts, mut reason) = match self.inlet.take() {
            Some(inlet) => match self.or_fail(inlet.into_inner().finish()) {
                Ok(taken) => taken,
                Err(error) => return (Err(error), None),
            },
            None => (Counts::default(), String::new()),
        };
        let synced = self.client.borrow_mut().sync_durable();
        let synced = self.or_fail(synced).map(drop);
        let mut outcome = self.client.borrow().outcome();
        counts.add(outcome.counts);
        if !outcome.reason.is_empty() {
            reason.clone_from(&outcome.reason);
        }
        let name = &self.name;
        if let (times @ 1.., why) = self.client.borrow().successors() {
            let times = counted(times, "time");
            tracing::warn!("source '{name}': the next daemon took over {times}; {why}");
        }
        if outcome.unsure > 0 {
            let records = counted(outcome.unsure, "record");
            tracing::warn!(
                "source '{name}': {records} unsure: a daemon was killed while it stored them; the log may have some"
            );
        }
        if counts.refused > 0 {
            let records = counted(counts.refused, "record");
            tracing::warn!("source '{name}': the daemon refused {records}; the last one: {reason}");
        }
        // Rows that never became records count as received and refused.
        counts.received += self.noted.get();
        counts.refused += self.noted.get();
        // Records that no daemon received are dropped.
        counts.received += outcome.unsent;
        counts.dropped += outcome.unsent;
        outcome.counts = counts;
        (synced, Some(outcome))
    }

    /// A failure, such as a daemon that does not return, ends the recording.
    fn or_fail<T, E>(&self, result: Result<T, E>) -> anyhow::Result<T>
    where
        Result<T, E>: Context<T, E>,
    {
        if result.is_err() {
            self.tally.fail();
        }
        result.context("it cannot be recorded any further")
    }
}
