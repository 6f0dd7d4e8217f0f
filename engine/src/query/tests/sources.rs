//! A scan of several sources at once agrees with the records that were written of each.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::rows::{column_value, value};
use crate::query::{Poll, SourcesScan};
use crate::schema::{FieldDef, FieldType, FieldValue, PayloadEncoder, SourceDef, TimeKind};
use crate::testkit::world::{Op, World, any_ops};
use crate::types::{SourceId, TimeRange, Timestamp};

/// The time of a row and the values of its fields.
type Found = (Timestamp, Vec<Option<Vec<u8>>>);

/// The rows of each source within `times`, by one scan of all of them that first looks `ahead_chunks` ahead.
fn scanned(
    world: &World,
    wanted: &[(SourceId, Vec<usize>)],
    times: TimeRange,
    ahead_chunks: u64,
) -> BTreeMap<SourceId, Vec<Found>> {
    let snapshot = world.snapshot();
    let poll = Poll::never();
    let scan = SourcesScan::new(&snapshot, wanted.to_vec(), times).unwrap();
    let ahead = scan.look_ahead(ahead_chunks, &poll).unwrap();
    let mut chunks_read = 0;
    // Two readers take turns, like two threads.
    let mut readers = [scan.reader(), scan.reader()];
    let mut found: BTreeMap<SourceId, Vec<Found>> = BTreeMap::new();
    let mut turn = 0;
    while let Some(chunks) = scan.next(&poll).unwrap() {
        turn += 1;
        chunks_read += chunks.count();
        readers[turn % 2]
            .read(chunks, |place, batch| {
                let (source, fields) = &wanted[place];
                let rows = found.entry(*source).or_default();
                for (nth, ts) in batch.times().iter().enumerate() {
                    let of = |field: &usize| column_value(&batch, *field, nth);
                    rows.push((Timestamp(*ts as i64), fields.iter().map(of).collect()));
                }
            })
            .unwrap();
    }
    assert!(ahead.staged <= ahead.chunks && ahead.chunks <= chunks_read);
    assert_eq!(ahead.more, ahead.chunks >= ahead_chunks);
    assert!(ahead.more || ahead.chunks == chunks_read);
    for rows in found.values_mut() {
        rows.retain(|(ts, _)| times.contains(*ts));
    }
    found.retain(|_, rows| !rows.is_empty());
    found
}

/// The expected rows, from single records.
fn expected(
    world: &World,
    wanted: &[(SourceId, Vec<usize>)],
    times: TimeRange,
) -> BTreeMap<SourceId, Vec<Found>> {
    let snapshot = world.snapshot();
    let mut rows: BTreeMap<SourceId, Vec<Found>> = BTreeMap::new();
    for record in world.records() {
        let Some((_, fields)) = wanted.iter().find(|(source, _)| *source == record.source) else {
            continue;
        };
        if times.contains(record.ts) {
            let source = snapshot.source_by_id(record.source).unwrap();
            let layout = source.layout_at(record.address);
            let of = |field: &usize| value(layout, *field, &record.payload);
            let row = (record.ts, fields.iter().map(of).collect());
            rows.entry(record.source).or_default().push(row);
        }
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn several_sources_at_once_have_the_rows_of_each(ops in any_ops(), one_in in 1usize..3, is_closed in any::<bool>(), third in any::<bool>(), ahead in 0u64..60) {
        let mut world = World::of(&ops);
        if is_closed {
            world.apply(&Op::Reopen);
        }
        let snapshot = world.snapshot();
        let wanted: Vec<(SourceId, Vec<usize>)> = snapshot
            .catalog()
            .sources()
            .filter(|source| (source.id.0 as usize).is_multiple_of(one_in))
            .map(|source| (source.id, (0..source.fields.len()).step_by(one_in).collect()))
            .collect();
        let of_arrivals = snapshot.catalog().sources().filter(|source| source.time == TimeKind::Arrival);
        let spans = of_arrivals.map(|source| snapshot.source_totals(source.id).unwrap());
        let ends = spans.filter_map(|totals| totals.first_ts.zip(totals.last_ts)).next();
        let times = match ends {
            Some((first, last)) if third => TimeRange {
                first: Timestamp(first.0 / 3 * 2 + last.0 / 3),
                last: Timestamp(first.0 / 3 + last.0 / 3 * 2),
            },
            _ => TimeRange::ALL,
        };
        prop_assert!(scanned(&world, &wanted, times, ahead) == expected(&world, &wanted, times));
    }
}

/// Sources that report in turn, like the targets of a scrape: their nodes are narrow, and in columns they are families.
#[test]
fn many_sources_with_few_records_each_have_all_their_rows() {
    const SOURCES: i64 = 70;
    const ROUNDS: i64 = 300;
    let mut world = World::new();
    let fields = vec![
        FieldDef::nullable("size", FieldType::U32),
        FieldDef::new("ratio", FieldType::F64),
    ];
    let mut encoder = PayloadEncoder::new(TimeKind::Own, &fields).unwrap();
    let ids: Vec<SourceId> = (0..SOURCES)
        .map(|nth| {
            let mut def = SourceDef::new(format!("host/{nth}"));
            def.time = TimeKind::Own;
            def.fields.clone_from(&fields);
            world.writer().define_source(&def).unwrap()
        })
        .collect();
    let ts = |round: i64, nth: i64| Timestamp(1_000_000 * (10_000 * round + nth));
    for round in 0..ROUNDS {
        for (nth, id) in (0..).zip(&ids) {
            let size = match (round + nth) % 5 {
                0 => FieldValue::Null,
                size => FieldValue::U64(size as u64 * 1000),
            };
            let values = [size, FieldValue::F64((round * nth % 400) as f64 / 4.0)];
            let mut payload = Vec::new();
            encoder
                .encode(Some(ts(round, nth)), &values, &mut payload)
                .unwrap();
            world.writer().push(*id, &payload).unwrap();
        }
    }
    world.apply(&Op::Publish);
    let wanted: Vec<(SourceId, Vec<usize>)> = ids.iter().map(|id| (*id, vec![0, 1])).collect();
    let part = TimeRange {
        first: ts(100, 3),
        last: ts(180, 40),
    };
    for is_closed in [false, true] {
        if is_closed {
            world.close();
        }
        for times in [TimeRange::ALL, part] {
            for wanted in [&wanted[..], &wanted[7..8], &wanted[20..60]] {
                let found = scanned(&world, wanted, times, 3);
                assert!(found == expected(&world, wanted, times));
                assert_eq!(found.len(), wanted.len());
            }
        }
        let totals = world.snapshot().source_totals(ids[9]).unwrap();
        assert_eq!(totals.first_ts, Some(ts(0, 9)));
        assert_eq!(totals.last_ts, Some(ts(ROUNDS - 1, 9)));
    }
    let report = world.scene.report();
    assert!(report.is_sound(), "{:?}", report.damage);
}
