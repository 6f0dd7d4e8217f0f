//! The caches between questions, and their size.

use std::sync::Arc;

use crate::error::Result;
use crate::query::caches::{CACHE_BYTES_MAX, Caches};
use crate::query::{
    AggregateSpec, Ask, Directory, PayloadRoom, Poll, Predicate, RecordView, Scan, Snapshot,
};
use crate::testkit::asked::{aggregated, scan_of, whole};
use crate::testkit::world::{Op, Spread, TUNING, World};
use crate::types::{Address, SourceId};

/// The addresses and payloads of a source's records, as scans read them.
fn rows(snapshot: &Snapshot, source: SourceId) -> Result<Vec<(Address, Vec<u8>)>> {
    let scan = Scan::new(snapshot, scan_of(source, Predicate::All))?;
    let mut reader = scan.reader(Ask::all());
    let mut room = PayloadRoom::default();
    let mut found = Vec::new();
    while let Some(chunk) = scan.next(&Poll::never())? {
        let rows = reader.read(chunk)?;
        let row = |record: RecordView<'_>| (record.address, record.payload.to_vec());
        found.extend(rows.records(&mut room).map(row));
    }
    Ok(found)
}

#[test]
fn a_second_question_reads_no_unit_again() {
    let batch = |nth: u64| Op::batch(nth as usize % 3, 600, Spread::Skewed, nth);
    let mut world = World::of(&(0..60).map(batch).collect::<Vec<_>>());
    world.close();
    let first = rows(&world.snapshot(), world.sources[0]).unwrap();
    assert!(first.len() > 1000);
    let segments = world.finished();
    for path in &segments {
        // Overwrites everything except the directory of units at the end.
        world.scene.change(path, |bytes| {
            let units = bytes.len() - 4096;
            bytes[..units].fill(0xA5);
        });
    }
    assert!(!segments.is_empty());
    // Verified units are not read from the disk again. A reader that never read them finds the damage.
    assert!(rows(&world.snapshot(), world.sources[0]).unwrap() == first);
    let stranger = world.scene.directory();
    let error = rows(&stranger.snapshot().unwrap(), world.sources[0]).unwrap_err();
    assert!(error.is_damage(), "{error}");
}

/// The rows of a source, and an aggregate of each of its indexes.
fn answers(snapshot: &Snapshot, source: SourceId) -> (Vec<(Address, Vec<u8>)>, Vec<String>) {
    let source = snapshot.source_by_id(source).unwrap();
    let aggregates = source.indexes.iter().map(|index| {
        let spec = AggregateSpec {
            threads: 2,
            ..whole(source.id, index.id, &[0.5, 0.999])
        };
        format!("{:?}", aggregated(snapshot, &spec))
    });
    let aggregates = aggregates.collect();
    (rows(snapshot, source.id).unwrap(), aggregates)
}

// G13
#[test]
fn several_directories_share_one_budget_and_answer_as_with_room_for_all() {
    let world = |first: u64| {
        let batch = |nth: u64| Op::batch(nth as usize % 3, 600, Spread::Skewed, first + nth);
        let mut world = World::of(&(0..45).map(batch).collect::<Vec<_>>());
        // Half of the directories have a writer.
        match first % 2 {
            0 => world.close(),
            _ => world.sync(),
        }
        world
    };
    let worlds: Vec<World> = (0..4).map(world).collect();
    let expected: Vec<_> = worlds
        .iter()
        .map(|world| answers(&world.snapshot(), world.sources[0]))
        .collect();
    let all = Arc::new(Caches::of_bytes(CACHE_BYTES_MAX));
    let open = |caches: &Arc<Caches>| -> Vec<Arc<Directory>> {
        let open = |world: &World| {
            let reader = world.scene.reader();
            Directory::with(reader, Arc::clone(caches), TUNING)
        };
        worlds.iter().map(open).collect()
    };
    let sources: Vec<SourceId> = worlds.iter().map(|world| world.sources[0]).collect();
    let ask = |directories: &[Arc<Directory>], watch: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let expected = sources.iter().zip(&expected);
            for (directory, (source, expected)) in directories.iter().zip(expected) {
                scope.spawn(move || {
                    for _ in 0..3 {
                        let snapshot = directory.snapshot().unwrap();
                        assert!(answers(&snapshot, *source) == *expected);
                        watch();
                    }
                });
            }
        });
    };
    let directories = open(&all);
    ask(&directories, &|| ());
    let needed = all.bytes();
    assert!(needed < CACHE_BYTES_MAX, "{needed}");
    drop(directories);
    assert_eq!(
        all.bytes(),
        0,
        "what is kept of closed directories is given back"
    );
    for budget in [needed / 2, needed / 10, 0, needed / 2] {
        let caches = Arc::new(Caches::of_bytes(budget));
        let directories = open(&caches);
        ask(&directories, &|| assert!(caches.bytes() <= budget));
        assert!(
            caches.bytes() > 0 || budget == 0,
            "something is kept in {budget}"
        );
        // A smaller budget holds at once, and a larger one is used.
        caches.set_bytes_max(budget / 2);
        assert!(caches.bytes() <= budget / 2);
        caches.set_bytes_max(CACHE_BYTES_MAX);
        ask(&directories, &|| ());
        assert!(caches.bytes() > budget, "{} of {needed}", caches.bytes());
    }
}
