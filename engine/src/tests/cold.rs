//! A question to a directory that is not cached.

use std::sync::Arc;

use super::client::{CHUNK, options};
use super::room::with_sources;
use crate::ingest::Writer;
use crate::log::tests::simulated::{Disk, loom};
use crate::log::{Durability, LogReader};
use crate::query::{Directory, Poll, Predicate, Scan};
use crate::schema::{FieldDef, FieldType, Filter, SourceDef};
use crate::testkit::asked::scan_of;

#[test]
fn the_roll_ups_of_a_directory_that_is_not_cached_are_fetched_at_once() {
    const ROLL_UPS: usize = 24;
    let disk = Disk::new();
    let (mut writer, mut push) = with_sources(&disk, 20, Durability::None);
    while writer.stats().chunks_sealed < 64 * ROLL_UPS as u64 {
        if push(&mut writer).is_none() {
            writer.wait_for_room().unwrap();
        }
    }
    writer.close().unwrap();
    let ask = || {
        let reader = LogReader::open_with(disk.storage(), &loom()).unwrap();
        let snapshot = Directory::of(reader).snapshot().unwrap();
        let source = snapshot.source("s0").unwrap().id;
        disk.take_waits();
        let records = snapshot.source_totals(source).unwrap().records;
        (records, disk.take_waits())
    };
    let (records, _) = ask();
    disk.drop_cached();
    let (again, waits) = ask();
    assert_eq!(again, records);
    // Their entries, whose places are known, and the last summaries are waited for; some roll-ups take two pages.
    assert!(
        waits < 2 * ROLL_UPS,
        "{waits} waits for {ROLL_UPS} roll-ups"
    );
}

#[test]
fn roll_ups_above_units_without_a_wanted_row_are_not_fetched() {
    // One roll-up above 64 others, in one segment.
    const CHUNKS: u64 = 64 * 64;
    let disk = Disk::new();
    let mut options = options(Durability::None);
    options.log.segment_bytes.records = CHUNKS * CHUNK;
    let mut writer = Writer::open_with(disk.storage(), &loom(), options).unwrap();
    let mut def = SourceDef::new("s");
    def.fields.push(FieldDef::new("v", FieldType::U64));
    let id = writer.define_source(&def).unwrap();
    while writer.stats().chunks_sealed <= CHUNKS {
        let half = writer.stats().chunks_sealed / (CHUNKS / 2);
        if (writer.try_push(id, &u64::to_le_bytes(half)).unwrap()).is_none() {
            writer.wait_for_room().unwrap();
        }
    }
    writer.close().unwrap();
    let ask = |text: &str, most: u64| {
        let reader = LogReader::open_with(disk.storage(), &loom()).unwrap();
        let snapshot = Directory::of(reader).snapshot().unwrap();
        let source = snapshot.source("s").unwrap();
        let filter = Filter::parse(text, &source.fields).unwrap();
        let test = Predicate::Fields(Arc::new(filter.expr().clone()));
        let scan = Scan::new(&snapshot, scan_of(source.id, test)).unwrap();
        let mut chunks = 0;
        while chunks < most && scan.next(&Poll::never()).unwrap().is_some() {
            chunks += 1;
        }
        let stats = scan.stats();
        assert!(
            stats.chunks_outside_zones <= stats.chunks_pruned,
            "{text}: {stats:?}"
        );
        (chunks, stats)
    };
    let (chunks, none) = ask("v = 7", u64::MAX);
    assert!(
        chunks < 16,
        "{chunks} chunks, of units that are not written"
    );
    let (chunks, half) = ask("v = 0", u64::MAX);
    assert!(chunks >= CHUNKS / 2, "{chunks}");
    assert!(half.chunks_outside_zones > CHUNKS / 4, "{half:?}");
    // The entries of the roll-ups are not read either.
    assert!(
        none.bytes_read * 4 < half.bytes_read,
        "{none:?} and {half:?}"
    );
    let (_, first) = ask("v = 0", 1);
    assert_eq!(first.chunks_outside_zones, 0, "none is passed before it");
    let (_, first) = ask("v = 1", 1);
    assert!(first.chunks_outside_zones > CHUNKS / 4, "{first:?}");
}
