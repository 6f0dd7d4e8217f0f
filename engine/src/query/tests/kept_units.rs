//! Units of columns that are kept between questions.

use std::fs;

use super::world::{Op, Spread, World};
use crate::query::{Directory, Poll, Predicate, Scan, ScanSpec, Snapshot};
use crate::types::{Address, Timestamp};

/// The time, address and payload of a record.
type Found = (Timestamp, Address, Vec<u8>);

fn rows(snapshot: &Snapshot, world: &World) -> crate::Result<Vec<Found>> {
    let spec = ScanSpec {
        source: world.sources[0],
        after: Address::ZERO,
        exact: Predicate::All,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let mut reader = scan.reader();
    let mut found = Vec::new();
    while let Some(chunk) = scan.next(&Poll::never())? {
        let rows = reader.read(chunk)?;
        found.extend(rows.rows.iter().map(|row| {
            let payload = row.payload(rows.bytes).to_vec();
            (row.ts, row.address(rows.base), payload)
        }));
    }
    Ok(found)
}

#[test]
fn a_second_question_reads_no_unit_again() {
    let batch = |nth: u64| Op::Batch {
        source: nth as usize % 3,
        records: 600,
        spread: Spread::Skewed,
        seed: nth,
    };
    let mut world = World::of(&(0..60).map(batch).collect::<Vec<_>>());
    world.compact();
    let first = rows(&world.snapshot(), &world).unwrap();
    assert!(first.len() > 1000);
    let folder = world.dir.path().join("loom/records");
    let mut columns = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "columns")
        {
            columns += 1;
            let mut bytes = fs::read(&path).unwrap();
            // All but the directory of units at its end.
            let units = bytes.len() - 4096;
            bytes[..units].fill(0xA5);
            fs::write(&path, &bytes).unwrap();
        }
    }
    assert!(columns > 0);
    // What was verified is not looked for on the disk; whoever never read it finds the damage.
    assert!(rows(&world.snapshot(), &world).unwrap() == first);
    let stranger = Directory::open(&world.dir.path().join("loom")).unwrap();
    let error = rows(&stranger.snapshot().unwrap(), &world).unwrap_err();
    assert!(error.is_damage(), "{error}");
}
