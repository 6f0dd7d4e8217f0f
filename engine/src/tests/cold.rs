//! A question to a directory that is not cached.

use super::room::with_sources;
use crate::log::tests::simulated::{Disk, loom};
use crate::log::{Durability, LogReader};
use crate::query::Directory;

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
