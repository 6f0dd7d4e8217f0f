//! The raw scan and its steps agree with the oracle, from the newest record to the oldest.

use std::ops::ControlFlow;

use super::question::{Found, Question};
use crate::query::{Ask, PayloadRoom, Poll, Predicate, RawScan, Scan, raw_scan};
use crate::schema::Filter;
use crate::testkit::asked::scan_of;
use crate::testkit::world::{Op, Spread, World};
use crate::types::LogKind;

pub fn check_raw_scan(question: &Question) {
    let mut found = Vec::new();
    raw_scan(
        &question.snapshot,
        question.source,
        question.time,
        &Poll::never(),
        |record| {
            found.push((record.address.0, record.ts.0, record.payload.to_vec()));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    found.reverse();
    assert_eq!(
        found,
        question.rows(&Predicate::time(question.time)),
        "raw scan"
    );
}

/// The steps of a scan without bounds go backward in log order, whatever the records' times: over all records, and over those that pass a
/// filter.
pub fn check_latest(question: &Question) {
    check_steps(question, None, &Predicate::All);
    check_steps(question, question.filter.as_ref(), &question.passing());
}

fn check_steps(question: &Question, filter: Option<&Filter>, wanted: &Predicate) {
    let mut scan = RawScan::new(&question.snapshot, question.source, wanted, Ask::all()).unwrap();
    let (mut found, mut room) = (Vec::new(), PayloadRoom::default());
    while let Some(step) = scan.next(&Poll::never()).unwrap() {
        assert!(step.count() > 0);
        let rows = step.addresses().iter().zip(step.arrivals());
        let rows = rows.zip(step.payloads(&mut room));
        found.extend(
            rows.map(|((address, arrival), payload)| (*address, *arrival as i64, payload.to_vec())),
        );
    }
    assert!(scan.batch().count() == 0 && scan.next(&Poll::never()).unwrap().is_none());
    let own = question.visible.iter().rev();
    let expected: Vec<Found> = own
        .filter(|record| record.source == question.source && record.passes(filter))
        .map(|record| (record.address.0, record.arrival.0, record.payload.clone()))
        .collect();
    assert_eq!(found, expected, "latest");
}

/// The number of records that a scan gives.
fn count(scan: &mut RawScan) -> usize {
    let steps = std::iter::from_fn(|| Some(scan.next(&Poll::never()).unwrap()?.count()));
    steps.sum()
}

#[test]
fn the_latest_records_of_a_rare_source_are_found_by_its_chain() {
    for source in [0, 1] {
        let rare = |seed| Op::push(source, 2, Spread::Few, seed);
        let world = World::of(&[
            rare(1),
            Op::Fill(300),
            rare(2),
            Op::Fill(300),
            rare(3),
            Op::Fill(300),
        ]);
        let snapshot = world.snapshot();
        let of = world.sources[source];
        let mut scan = RawScan::new(&snapshot, of, &Predicate::All, Ask::default()).unwrap();
        assert_eq!(count(&mut scan), 6);
        let stats = scan.stats();
        // Three chunks hold the source; chunks past the last summary are read too.
        assert!(
            stats.chunks_read <= 6 && stats.chunks_total >= 900,
            "{stats:?}"
        );
        assert!(stats.nodes_opened < 100, "{stats:?}");
        assert_eq!(stats.chunks_read + stats.chunks_pruned, stats.chunks_total);
    }
}

/// If the walk can read no node, summaries that were read before may still be cached. A chunk without the source breaks no chain, because
/// no chain leads there.
#[test]
fn what_is_known_of_damaged_nodes_breaks_no_chain() {
    let rare = |seed| Op::push(0, 2, Spread::Few, seed);
    for fill in [1, 5, 30, 70] {
        let mut world = World::of(&[rare(1), Op::Fill(fill), rare(2), Op::Fill(fill)]);
        world.close();
        let snapshot = world.snapshot();
        for source in &world.sources {
            let scan = Scan::new(&snapshot, scan_of(*source, Predicate::All)).unwrap();
            scan.count(&Poll::never()).unwrap();
        }
        for path in world.scene.segments(LogKind::Times) {
            world.scene.change(&path, Vec::clear);
        }
        let (snapshot, of) = (world.snapshot(), world.sources[0]);
        let mut scan = RawScan::new(&snapshot, of, &Predicate::All, Ask::default()).unwrap();
        assert_eq!(count(&mut scan), 4, "{fill}");
    }
}
