//! The list of chunks agrees with the records, live and closed, for one source and for all.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::query::{ChunkList, ChunkSource, Poll, Snapshot};
use crate::testkit::oracle::Record;
use crate::testkit::world::{World, any_ops};
use crate::types::{ChunkNo, SourceId};

fn listed(snapshot: &Snapshot, source: Option<SourceId>) -> Vec<ChunkSource> {
    let mut list = ChunkList::new(snapshot, source);
    let mut rows = Vec::new();
    while let Some(chunk) = list.next(&Poll::never()).unwrap() {
        assert!(!chunk.is_empty());
        rows.extend(chunk);
    }
    rows
}

fn expected(records: &[Record], chunk_bytes: u32) -> Vec<ChunkSource> {
    let mut rows: BTreeMap<(ChunkNo, SourceId), ChunkSource> = BTreeMap::new();
    let mut latest: BTreeMap<SourceId, ChunkNo> = BTreeMap::new();
    for record in records {
        let chunk = record.address.chunk(chunk_bytes);
        let row = rows.entry((chunk, record.source)).or_insert_with(|| {
            let previous_chunk = latest.insert(record.source, chunk);
            ChunkSource {
                chunk,
                source: record.source,
                records: 0,
                first_ts: record.ts,
                last_ts: record.ts,
                first_arrival: record.arrival,
                last_arrival: record.arrival,
                previous_chunk,
            }
        });
        row.records += 1;
        row.first_ts = row.first_ts.min(record.ts);
        row.last_ts = row.last_ts.max(record.ts);
        row.last_arrival = record.arrival;
    }
    rows.into_values().collect()
}

fn check(world: &World, position: prop::sample::Index) {
    let all = world.records();
    let mut snapshots = vec![world.snapshot()];
    if !all.is_empty() {
        let end = position.get(&all).end();
        snapshots.push(world.directory.snapshot_at(end.0).unwrap());
    }
    for snapshot in snapshots {
        let visible: Vec<Record> = all
            .iter()
            .filter(|record| record.end().0 <= snapshot.position())
            .cloned()
            .collect();
        let expected = expected(&visible, snapshot.chunk_bytes());
        assert_eq!(listed(&snapshot, None), expected);
        for source in &world.sources {
            let own: Vec<ChunkSource> = expected
                .iter()
                .filter(|row| row.source == *source)
                .copied()
                .collect();
            assert_eq!(listed(&snapshot, Some(*source)), own);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn chunks_are_listed_as_their_records_say(ops in any_ops(), position: prop::sample::Index) {
        let mut world = World::of(&ops);
        check(&world, position);
        world.close();
        check(&world, position);
    }
}
