//! Segments that become columns on a disk that fails, whose power goes, or that retention looks at meanwhile: rows or columns are there, whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::{Client, options};
use super::crashes::seed;
use super::judge::{Owed, read, recover};
use crate::log::Durability;
use crate::log::tests::simulated::{
    Boundary, Disk, EIO, ENOSPC, Fault, Kind, Luck, Marks, Op, Rule, loom,
};
use crate::testkit::Random;

/// Some full segments, durable.
fn rows() -> (Disk, Client) {
    let disk = Disk::new();
    let mut client = Client::start(&disk, &options(Durability::Batch), Vec::new()).unwrap();
    client.push(900).and_then(|()| client.sync()).unwrap();
    (disk, client)
}

fn owed(client: &Client) -> Owed {
    let records = client.sent.len() as u64;
    Owed {
        promise: "G3",
        records,
        begin_most: client.marks.begin.load(Ordering::Acquire),
        seen: records,
        lost: 0,
    }
}

fn names(disk: &Disk) -> Vec<String> {
    disk.storage().list(&loom().join("records")).unwrap()
}

fn columns(disk: &Disk) -> usize {
    let names = names(disk);
    names
        .iter()
        .filter(|name| name.ends_with(".columns"))
        .count()
}

/// Loses the power at each of these, in each way, and holds what is found against the list.
fn lose_power_everywhere(past: &[Boundary], client: &Client, random: &mut Random) {
    let lucks = [
        Luck::Nothing,
        Luck::Some(10),
        Luck::Some(50),
        Luck::Some(50),
        Luck::Some(90),
        Luck::Everything,
    ];
    for at in past {
        for luck in lucks {
            let lost = at.lose_power(luck, random);
            if let Err(broken) = recover(&lost, &client.sent, &owed(client)) {
                panic!("without power before {:?}, {luck:?}: {broken:?}", at.op);
            }
        }
    }
}

// case Crash: while a segment becomes columns
#[test]
fn a_loss_of_power_while_segments_become_columns_leaves_one_form_that_is_whole() {
    let mut random = Random(seed("compactions"));
    let (disk, mut client) = rows();
    disk.remember(&Arc::new(Marks::default()));
    client.compact().unwrap();
    assert!(client.compacted >= 2, "{}", client.compacted);
    let past = disk.past();
    lose_power_everywhere(&past, &client, &mut random);
    println!("{} operations", past.len());
}

#[test]
fn a_loss_of_power_while_the_last_segment_becomes_columns_and_rows_again_loses_no_record() {
    let mut random = Random(seed("compactions_closed"));
    let (disk, mut client) = rows();
    // Some units of the last segment are full.
    client.push(150).unwrap();
    client.close().unwrap();
    disk.remember(&Arc::new(Marks::default()));
    client.compact_closed().unwrap();
    let closed = names(&disk).len();
    assert_eq!(columns(&disk), closed, "{:?}", names(&disk));
    // The writer may prepare the segment after it at once.
    client.open().unwrap();
    assert_eq!(columns(&disk) + 1, closed, "{:?}", names(&disk));
    let past = disk.past();
    lose_power_everywhere(&past, &client, &mut random);
    println!("{} operations", past.len());
}

/// The name of the columns may not be durable yet when retention finds rows that they replaced.
// case Crash: while a segment becomes columns
#[test]
fn retention_removes_no_rows_before_the_name_of_their_columns_is_durable() {
    let mut random = Random(seed("compactions_retention"));
    let (disk, mut client) = rows();
    let of_folder = |op: &Op| op.kind == Kind::SyncFolder && op.path.ends_with("records");
    disk.rule(Rule::always(Fault::Fails(EIO), of_folder).after(1));
    client.compact().unwrap_err();
    assert_eq!(columns(&disk), 3);
    disk.obey();
    disk.remember(&client.marks);
    // The first segment goes, and the rows of the second.
    assert_eq!(client.evict().unwrap(), 1);
    client.sync_durable().unwrap();
    assert_eq!(columns(&disk), 2);
    lose_power_everywhere(&disk.past(), &client, &mut random);
}

// case Crash: while a segment becomes columns
#[test]
fn a_compaction_that_the_disk_fails_leaves_every_record_and_names_what_failed() {
    let faults = [
        (Kind::Open, Fault::Fails(EIO)),
        (Kind::Read, Fault::Fails(EIO)),
        (Kind::Write, Fault::Fails(ENOSPC)),
        (Kind::Write, Fault::Tears(EIO)),
        (Kind::Sync, Fault::Fails(EIO)),
        (Kind::Rename, Fault::Fails(EIO)),
        (Kind::SyncFolder, Fault::Fails(EIO)),
        (Kind::Unlink, Fault::Fails(EIO)),
    ];
    for (kind, fault) in faults {
        for after in 0..3 {
            let (disk, mut client) = rows();
            let in_records = move |op: &Op| {
                op.kind == kind && (op.is_in("records") || op.path.ends_with("records"))
            };
            disk.rule(Rule::once(fault, in_records).after(after));
            let failed = client.compact();
            let when = format!("{kind:?} {after}, {fault:?}");
            if let Err(error) = &failed {
                assert!(error.to_string().contains("records"), "{when}: {error}");
            }
            disk.obey();
            read(&disk, &client.sent, &owed(&client))
                .unwrap_or_else(|broken| panic!("{when}: {broken:?}"));
            // It goes on where it was; what replaced something is not looked at again.
            client
                .compact()
                .unwrap_or_else(|error| panic!("{when}: {error}"));
            assert!(columns(&disk) >= 2, "{when}: {:?}", names(&disk));
            recover(&disk.now().kill(), &client.sent, &owed(&client))
                .unwrap_or_else(|broken| panic!("{when}: {broken:?}"));
        }
    }
}

#[test]
fn a_segment_that_cannot_be_read_stays_and_those_after_it_become_columns() {
    let (disk, mut client) = rows();
    let rows = names(&disk);
    let first = rows[0].clone();
    disk.rule(Rule::always(Fault::Fails(EIO), move |op: &Op| {
        op.kind == Kind::Read && op.path.ends_with(&first)
    }));
    let failed = client.compact().unwrap_err().to_string();
    assert!(failed.contains(&rows[0]), "{failed}");
    let now = names(&disk);
    assert_eq!(now[0], rows[0]);
    assert!(columns(&disk) >= 1, "{now:?}");
    assert!(!now.contains(&rows[1]), "{now:?}");
    disk.obey();
    read(&disk, &client.sent, &owed(&client)).unwrap();
}
