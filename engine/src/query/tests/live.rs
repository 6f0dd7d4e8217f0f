//! Snapshots while a writer runs: each is exact, and gives the same answers when its position is asked for again.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::query::{AggregateRow, Poll, Snapshot, raw_scan};
use crate::schema::{FieldValue, PayloadEncoder, Source};
use crate::testkit::asked::{aggregated, whole};
use crate::testkit::world::World;
use crate::types::{IndexId, Key, SourceId, Sum, TimeRange};

/// `size` counts up from 1, so that every aggregate of the first n records is known.
fn numbered(source: &Source, number: u64, encoder: &mut PayloadEncoder, payload: &mut Vec<u8>) {
    assert_eq!(source.name, "metric");
    let values = [
        FieldValue::U64(number % 4),
        FieldValue::U64(number),
        FieldValue::I64(-1),
        FieldValue::F64(0.5),
        FieldValue::Bytes(b"live"),
        FieldValue::Null,
    ];
    payload.clear();
    encoder.encode(None, &values, payload).unwrap();
}

fn all_of(snapshot: &Snapshot, source: SourceId, index: IndexId) -> AggregateRow {
    aggregated(snapshot, &whole(source, index, &[0.25, 0.999])).remove(0)
}

#[test]
fn snapshots_under_a_running_writer_hold_the_first_records_and_no_others() {
    let mut world = World::new();
    let source = world.snapshot().source("metric").unwrap();
    let index = source.indexes[0].id;
    let mut writer = world.writer.take().unwrap();
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        scope.spawn(|| {
            let mut encoder = PayloadEncoder::new(source.time, &source.fields).unwrap();
            let mut payload = Vec::new();
            // Some twenty blocks of 256 KiB.
            for number in 1..=100_000 {
                numbered(&source, number, &mut encoder, &mut payload);
                writer.push(source.id, &payload).unwrap();
                if number % 61 == 0 {
                    writer.publish().unwrap();
                }
            }
            writer.publish().unwrap();
            done.store(true, Ordering::Release);
        });
        let mut seen = Vec::new();
        loop {
            let last = done.load(Ordering::Acquire);
            let snapshot = world.directory.snapshot().unwrap();
            let row = all_of(&snapshot, source.id, index);
            let count = row.count;
            assert_eq!(
                row.sum,
                Sum::Int(i128::from(count) * i128::from(count + 1) / 2)
            );
            assert_eq!(row.min.map_or(0, Key::to_u64), u64::from(count > 0));
            assert_eq!(row.max.map_or(0, Key::to_u64), count);
            if count > 0 {
                let ranks =
                    [count.div_ceil(4), (count * 999).div_ceil(1000)].map(|rank| Some(Key(rank)));
                assert_eq!(row.quantiles, ranks);
            }
            let mut newest = None;
            raw_scan(
                &snapshot,
                source.id,
                TimeRange::ALL,
                &Poll::never(),
                |record| {
                    newest = record.layout.key(1, record.payload).map(Key::to_u64);
                    ControlFlow::Break(())
                },
            )
            .unwrap();
            assert_eq!(newest.unwrap_or(0), count);
            seen.push((snapshot.position(), row));
            if last {
                return seen;
            }
        }
    });
    assert_eq!(seen.last().unwrap().1.count, 100_000);
    for (position, row) in &seen {
        let again = world.directory.snapshot_at(*position).unwrap();
        assert_eq!(
            &all_of(&again, source.id, index),
            row,
            "position {position}"
        );
    }
    let end = seen.last().unwrap().0;
    assert!(world.directory.snapshot_at(end + 1).is_err());
}
