//! Losses that have no record yet: which entries of `unrecorded` the log holds, and both read together while a writer goes on.

use std::ops::ControlFlow;

use super::interrupt::Poll;
use super::raw_scan::raw_scan;
use super::snapshot::Snapshot;
use crate::error::{Error, Result};
use crate::schema::LOSSES_SOURCE;
use crate::types::{Address, TimeRange};
use crate::unrecorded::{self, Entry};

/// An entry leaves the file about once a second, and a look takes far less.
const LOOKS_MOST: usize = 64;

/// The ledger of one instant: the records that the snapshot holds, and the entries beside them, which it does not.
pub(super) struct Ledger {
    pub snapshot: Snapshot,
    /// An error: what stands there cannot be known.
    pub unrecorded: Result<Vec<Entry>>,
}

impl Snapshot {
    /// The entries without those whose records this snapshot holds.
    ///
    /// # Errors
    /// Damage, eviction meanwhile, [`Error::Interrupted`].
    pub fn without_recorded(&self, entries: Vec<Entry>, poll: &Poll<'_>) -> Result<Vec<Entry>> {
        let marked: Vec<Address> = entries
            .iter()
            .filter_map(|entry| entry.recorded_at)
            .collect();
        let recorded = self.recorded_among(&marked, poll)?;
        let is_recorded =
            |entry: &Entry| entry.recorded_at.is_some_and(|at| recorded.contains(&at));
        let others = entries.into_iter().filter(|entry| !is_recorded(entry));
        Ok(others.collect())
    }

    /// Which of these addresses hold a record of `loom_losses`.
    fn recorded_among(&self, marked: &[Address], poll: &Poll<'_>) -> Result<Vec<Address>> {
        let mut found = Vec::new();
        let Some((source, lowest)) = self.catalog().find(LOSSES_SOURCE).zip(marked.iter().min())
        else {
            return Ok(found);
        };
        raw_scan(self, source.id, TimeRange::ALL, poll, |record| {
            if marked.contains(&record.address) {
                found.push(record.address);
            }
            match record.address > *lowest {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })?;
        Ok(found)
    }

    /// The ledger as it is now, beside a writer that records meanwhile: no loss that was kept when this was called is missed, and none is
    /// told twice.
    ///
    /// A writer keeps an entry in the file, appends its record, marks the entry with the record's address, publishes the record, and only then
    /// takes the entry out. So the file is read, then the log, then the file again, until everything that the first look saw is there at the
    /// second. An entry of the second look is in the log of the snapshot just if it is marked with the address of a record there: one that is
    /// not marked yet was not published when the snapshot, which is older, was taken. What the first look did not see had left the file
    /// before, and so was published before the snapshot. What left it between the two looks is why there is another try.
    pub(super) fn ledger_now(&self, poll: &Poll<'_>) -> Result<Ledger> {
        let (directory, uuid) = (self.directory(), *self.logs().uuid());
        let read = || unrecorded::read(directory.path(), uuid);
        let mut before = read();
        for _ in 0..LOOKS_MOST {
            poll.check()?;
            let snapshot = directory.snapshot()?;
            let after = read();
            if let (Ok(seen), Ok(entries)) = (&before, &after)
                && !seen
                    .iter()
                    .all(|entry| entries.iter().any(|other| other.is_same(entry)))
            {
                before = after;
                continue;
            }
            let unrecorded = match before.and(after) {
                Ok(entries) => Ok(snapshot.without_recorded(entries, poll)?),
                Err(error) => Err(error),
            };
            return Ok(Ledger {
                snapshot,
                unrecorded,
            });
        }
        Err(Error::Query(
            "losses are recorded faster than they can be listed; ask again".to_owned(),
        ))
    }
}
