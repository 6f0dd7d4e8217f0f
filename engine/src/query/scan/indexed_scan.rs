//! The indexed range scan (paper §4.3): records of a source within a time range whose value of an index lies in a range.

use std::ops::ControlFlow;

use super::ask::Ask;
use super::batch::{PayloadRoom, RecordView};
use super::shared_scan::{Scan, ScanSpec};
use crate::error::Result;
use crate::query::poll::Poll;
use crate::query::predicate::Predicate;
use crate::query::snapshot::Snapshot;
use crate::types::{Address, IndexId, TimeRange, ValueRange};

/// Passes the records that the index holds to `each`, in log order, until it breaks.
///
/// # Errors
/// An unknown index, damage, eviction, [`crate::Error::Interrupted`].
pub fn indexed_scan(
    snapshot: &Snapshot,
    index: IndexId,
    time: TimeRange,
    value: ValueRange,
    poll: &Poll<'_>,
    mut each: impl FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let spec = ScanSpec {
        source: snapshot.index(index)?.source,
        after: Address::ZERO,
        exact: Predicate::and([Predicate::time(time), Predicate::value(index, value)]),
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let mut reader = scan.reader(Ask::all());
    let mut room = PayloadRoom::default();
    while let Some(chunk) = scan.next(poll)? {
        let found = reader.read(chunk)?;
        for record in found.records(&mut room) {
            if each(record).is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}
