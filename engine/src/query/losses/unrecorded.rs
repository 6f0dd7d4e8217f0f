//! Losses that have no record yet: which entries of `unrecorded` the log holds, and both read together while a writer goes on.

use std::ops::ControlFlow;

use crate::error::{Error, Result};
use crate::query::poll::Poll;
use crate::query::scan::raw_scan::raw_scan;
use crate::query::snapshot::Snapshot;
use crate::schema::{LOSSES_SOURCE, LossDecoder, LossReason};
use crate::types::{Address, TimeRange, Timestamp};
use crate::unrecorded::{self, Condition, Entry, FILE_NAME, Kept};

/// An entry leaves the file about once a second, and a look takes far less.
const LOOKS_MOST: usize = 64;

/// The ledger of one instant: the records that the snapshot holds, and the entries beside them, which it does not.
pub(super) struct Ledger {
    pub snapshot: Snapshot,
    pub unrecorded: Vec<Entry>,
    /// Why there may be more of them that nobody knows, if so.
    pub untold: Option<Error>,
}

impl Snapshot {
    /// The entries without those whose records this snapshot holds.
    ///
    /// # Errors
    /// Damage, eviction meanwhile, [`Error::Interrupted`].
    pub fn without_recorded(&self, kept: Kept, poll: &Poll<'_>) -> Result<Vec<Entry>> {
        let mut entries = kept.entries;
        let marked: Vec<Address> = entries
            .iter()
            .filter_map(|entry| entry.recorded_at)
            .collect();
        let recorded = self.recorded_among(&marked, poll)?;
        let is_recorded =
            |entry: &Entry| entry.recorded_at.is_some_and(|at| recorded.contains(&at));
        entries.retain(|entry| !is_recorded(entry));
        if kept.condition == Condition::Half {
            self.drop_recorded_since(&mut entries, poll)?;
        }
        Ok(entries)
    }

    /// Drops entries that got their mark in a slot that is lost: a record has the source, the reason and the time of its entry, and no other
    /// entry has all three.
    fn drop_recorded_since(&self, entries: &mut Vec<Entry>, poll: &Poll<'_>) -> Result<()> {
        let earliest = entries.iter().map(|entry| entry.from).min();
        let Some((source, first)) = self.catalog().find(LOSSES_SOURCE).zip(earliest) else {
            return Ok(());
        };
        let decoder = LossDecoder::new(source);
        let name_of = |entry: &Entry| entry.source.and_then(|id| self.catalog().source(id));
        let range = TimeRange {
            first,
            last: Timestamp::MAX,
        };
        raw_scan(self, source.id, range, poll, |record| {
            let text = decoder.decode(record.layout, record.payload);
            entries.retain(|entry| {
                text.from != Some(entry.from)
                    || text.source.as_deref() != name_of(entry).map(|source| source.name.as_str())
                    || LossReason::of_number(entry.reason)
                        .is_none_or(|reason| reason.label() != text.reason)
            });
            match entries.is_empty() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
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
            if let (Ok(seen), Ok(kept)) = (&before, &after)
                && !seen
                    .entries
                    .iter()
                    .all(|entry| kept.entries.iter().any(|other| other.is_same(entry)))
            {
                before = after;
                continue;
            }
            return Ok(match before.and(after) {
                Ok(kept) => Ledger {
                    untold: kept.what().map(|what| Error::Damaged {
                        path: directory.path().join(FILE_NAME),
                        what: what.to_owned(),
                    }),
                    unrecorded: snapshot.without_recorded(kept, poll)?,
                    snapshot,
                },
                Err(error) => Ledger {
                    snapshot,
                    unrecorded: Vec::new(),
                    untold: Some(error),
                },
            });
        }
        Err(Error::Query(
            "losses are recorded faster than they can be listed; ask again".to_owned(),
        ))
    }
}
