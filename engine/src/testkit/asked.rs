//! Questions in their plainest form, which tests change where they ask for something else.

use std::ops::ControlFlow;
use std::path::Path;

use crate::error::Result;
use crate::query::{
    AggregateRow, AggregateSpec, Directory, Poll, Predicate, Quantile, Scan, ScanSpec, Snapshot,
    aggregate, raw_scan,
};
use crate::types::{Address, ChunkNo, IndexId, SourceId, TimeRange, ValueRange};

pub fn quantiles(of: &[f64]) -> Vec<Quantile> {
    of.iter().map(|q| Quantile::new(*q).unwrap()).collect()
}

/// All values of an index in one row, by one thread.
pub fn whole(source: SourceId, index: IndexId, of: &[f64]) -> AggregateSpec {
    AggregateSpec {
        source,
        index,
        time: TimeRange::ALL,
        value: ValueRange::ALL,
        filter: Predicate::All,
        bucket: None,
        quantiles: quantiles(of),
        approx: false,
        threads: 1,
    }
}

pub fn aggregated(snapshot: &Snapshot, spec: &AggregateSpec) -> Vec<AggregateRow> {
    aggregate(snapshot, spec, &Poll::never()).unwrap()
}

/// The records of a source for which a predicate holds.
pub fn scan_of(source: SourceId, exact: Predicate) -> ScanSpec {
    ScanSpec {
        source,
        after: Address::ZERO,
        exact,
        prune: Predicate::All,
        index_filters: Vec::new(),
    }
}

/// The rest of a scan.
pub fn chunks_of(scan: &Scan) -> Vec<ChunkNo> {
    std::iter::from_fn(|| scan.next(&Poll::never()).unwrap()).collect()
}

/// The addresses and payloads of a source's records, in log order.
pub fn records(snapshot: &Snapshot, source: SourceId) -> Result<Vec<(Address, Vec<u8>)>> {
    let mut found = Vec::new();
    raw_scan(snapshot, source, TimeRange::ALL, &Poll::never(), |record| {
        found.push((record.address, record.payload.to_vec()));
        ControlFlow::Continue(())
    })?;
    found.reverse();
    Ok(found)
}

/// The payloads of the records that a process sees of a source which opens the directory now, in log order.
pub fn payloads(dir: &Path, source: &str) -> Vec<Vec<u8>> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let source = snapshot.source(source).unwrap().id;
    let records = records(&snapshot, source).unwrap();
    records.into_iter().map(|(_, payload)| payload).collect()
}

/// The numbers that the records of a source begin with, in log order.
pub fn numbers(snapshot: &Snapshot, source: SourceId) -> Result<Vec<u64>> {
    let number = |(_, payload): (Address, Vec<u8>)| {
        u64::from_le_bytes(*payload.first_chunk().expect("a number"))
    };
    Ok(records(snapshot, source)?.into_iter().map(number).collect())
}
