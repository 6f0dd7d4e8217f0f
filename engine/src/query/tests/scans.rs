//! The indexed scan, and the scan that threads share, agree with the oracle.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::question::{Found, Question};
use crate::error::Error;
use crate::format::UNIT_CHUNKS;
use crate::query::{
    Ask, PayloadRoom, Poll, Predicate, Scan, ScanSpec, Snapshot, indexed_scan, raw_scan,
};
use crate::testkit::asked::{chunks_of, scan_of};
use crate::testkit::oracle::Record;
use crate::testkit::world::{Op, Spread, World};
use crate::types::{Address, ChunkNo, IndexId, SourceId, TimeRange};

pub fn check_indexed_scan(question: &Question, index: IndexId) {
    let mut found = Vec::new();
    indexed_scan(
        &question.snapshot,
        index,
        question.time,
        question.value,
        &Poll::never(),
        |record| {
            found.push((record.address.0, record.ts.0, record.payload.to_vec()));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    let range = question.value;
    let predicate = Predicate::And(vec![
        Predicate::time(question.time),
        Predicate::value(index, range),
    ]);
    assert_eq!(found, question.rows(&predicate), "indexed scan");
}

pub fn scanned(
    snapshot: &Snapshot,
    source: SourceId,
    after: Address,
    exact: Predicate,
    prune: Predicate,
) -> (Vec<Found>, Option<u64>) {
    let spec = ScanSpec {
        source,
        after,
        exact,
        prune,
        index_filters: Vec::new(),
    };
    let count = Scan::new(snapshot, spec.clone())
        .unwrap()
        .count(&Poll::never())
        .unwrap();
    let scan = Scan::new(snapshot, spec).unwrap();
    let mut rows: Vec<Found> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|least| {
                let scan = Arc::clone(&scan);
                scope.spawn(move || {
                    let mut reader = scan.reader(Ask::all());
                    let mut room = PayloadRoom::default();
                    let mut rows = Vec::new();
                    loop {
                        let chunks = claimed(&scan, least);
                        if chunks.is_empty() {
                            return rows;
                        }
                        for chunk in chunks {
                            let found = reader.read(chunk).unwrap();
                            rows.extend(found.records(&mut room).map(|record| {
                                (record.address.0, record.ts.0, record.payload.to_vec())
                            }));
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    rows.sort_unstable();
    let stats = scan.stats();
    assert!(stats.chunks_read <= stats.chunks_total, "{stats:?}");
    (rows, count)
}

/// The next chunk of a scan if `least` is 0, otherwise the next claim of at least that many.
fn claimed(scan: &Scan, least: usize) -> Vec<ChunkNo> {
    let poll = Poll::never();
    let mut chunks = Vec::new();
    match least {
        0 => chunks.extend(scan.next(&poll).unwrap()),
        _ => scan
            .claim(least, &poll, |chunk| chunks.push(chunk))
            .unwrap(),
    }
    chunks
}

#[test]
fn claims_end_where_units_do_and_leave_nothing_out() {
    let push = |source| Op::batch(source, 400, Spread::Skewed, source as u64);
    let world = World::of(&(0..60).map(|nth| push(nth % 3)).collect::<Vec<_>>());
    let snapshot = world.snapshot();
    let spec = scan_of(world.sources[0], Predicate::All);
    let all = chunks_of(&Scan::new(&snapshot, spec.clone()).unwrap());
    assert!(all.len() > 4 * UNIT_CHUNKS as usize);
    for least in [1, 5, 20] {
        let scan = Scan::new(&snapshot, spec.clone()).unwrap();
        let mut found = Vec::new();
        loop {
            let chunks = claimed(&scan, least);
            let Some(last) = chunks.last() else {
                break;
            };
            let is_end = chunks.len() + found.len() == all.len();
            assert!(is_end || chunks.len() >= least);
            let behind = all.get(found.len() + chunks.len());
            assert!(behind.is_none_or(|behind| behind.0 / UNIT_CHUNKS > last.0 / UNIT_CHUNKS));
            found.extend(chunks);
            // A thread that takes single chunks gets the next one.
            found.extend(scan.next(&Poll::never()).unwrap());
        }
        assert_eq!(found, all);
    }
}

#[test]
fn an_index_that_is_named_applies_its_filter_before_and_after_it_began() {
    let push = |seed| Op::batch(0, 600, Spread::Skewed, seed);
    // `large` holds a nullable value if kind is 2 or 3; `ones` counts the records of kind 1.
    let world = World::of(&[push(1), Op::Define(1), Op::Define(2), push(2), push(3)]);
    let all = world.records();
    let snapshot = world.snapshot();
    let source = snapshot.source("metric").unwrap();
    for (name, kinds) in [("large", 2..=3), ("ones", 1..=1)] {
        let spec = ScanSpec {
            index_filters: vec![source.index(name).unwrap().id],
            ..scan_of(source.id, Predicate::All)
        };
        let scan = Scan::new(&snapshot, spec).unwrap();
        assert_eq!(scan.count(&Poll::never()).unwrap(), None);
        let mut reader = scan.reader(Ask::all());
        let mut found = Vec::new();
        while let Some(chunk) = scan.next(&Poll::never()).unwrap() {
            let rows = reader.read(chunk).unwrap();
            found.extend(rows.addresses().iter().copied().map(Address));
        }
        let kind = |record: &Record| record.keys.len() > 1 && kinds.contains(&record.kind());
        let expected: Vec<Address> = all
            .iter()
            .filter(|record| kind(record))
            .map(|record| record.address)
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn an_interrupted_query_says_so() {
    let ops: Vec<Op> = (0..40).map(|_| Op::Fill(50)).collect();
    let world = World::of(&ops);
    let snapshot = world.snapshot();
    let stop = || true;
    let poll = Poll::new(&stop);
    let started = Instant::now();
    // Repeated until the closure is called: the directory is small, and the closure is called only after an interval.
    loop {
        let seen = raw_scan(&snapshot, world.sources[2], TimeRange::ALL, &poll, |_| {
            ControlFlow::Continue(())
        });
        match seen {
            Err(Error::Interrupted) => break,
            seen => seen.unwrap(),
        }
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
