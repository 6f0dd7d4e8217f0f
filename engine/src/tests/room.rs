//! Starts on a full disk, and a disk that fills while records come.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::client::{CHUNK, Client, SEGMENT, options};
use super::judge::{Owed, is_named, read, recover};
use crate::error::{Error, Result};
use crate::ingest::{WhenFull, Writer, WriterOptions};
use crate::log::Durability;
use crate::log::tests::simulated::{Disk, ENOSPC, Fault, Kind, Luck, Rule, loom};
use crate::schema::parse_sources;
use crate::testkit::Random;
use crate::types::Address;

/// A start on a full disk evicts no record at or above this address.
const GIVEN_UP_MOST: u64 = 5 * SEGMENT;

const EVICT: WhenFull = WhenFull::Evict { kept_from: None };

/// The end of the previous writer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Ended {
    Closed,
    Killed,
    WithoutPower,
}

fn asked(when_full: WhenFull) -> WriterOptions {
    WriterOptions {
        when_full,
        ..options(Durability::Batch)
    }
}

/// A disk with a little more than six segments and no more room.
fn full(ended: Ended) -> Result<(Disk, Client)> {
    let disk = Disk::new();
    let mut client = Client::start(&disk, &asked(WhenFull::Refuse), Vec::new())?;
    while client.writer().position().0 < 6 * SEGMENT + 3 * CHUNK {
        client.push(50)?;
        client.sync()?;
    }
    let disk = match ended {
        Ended::Closed => {
            client.close()?;
            disk
        }
        Ended::Killed => disk.now().kill(),
        Ended::WithoutPower => disk.now().lose_power(Luck::Some(50), &mut Random(7)),
    };
    client.writer = None;
    disk.set_capacity(disk.used_bytes());
    Ok((disk, client))
}

fn owed(client: &Client, begin_most: u64) -> Owed {
    Owed {
        promise: "G3",
        records: client.sent.len() as u64,
        begin_most,
        seen: client.sent.len() as u64,
        lost: 0,
    }
}

// case Disk: full at the start
#[test]
fn on_a_full_disk_a_start_gives_up_the_oldest_segment_where_that_was_asked_for() {
    for ended in [Ended::Closed, Ended::Killed, Ended::WithoutPower] {
        let (disk, client) = full(ended).unwrap();
        if ended != Ended::Killed {
            let refused = Client::start(&disk, &asked(WhenFull::Refuse), client.sent.clone());
            let error = refused.err().unwrap();
            assert!(
                error.to_string().contains("No space left"),
                "{ended:?}: {error}"
            );
            read(&disk, &client.sent, &owed(&client, 0)).unwrap();
        }
        let marks = std::sync::Arc::default();
        disk.remember(&marks);
        let mut again = Client::start(&disk, &asked(EVICT), client.sent.clone()).unwrap();
        let past = disk.past();
        let found = read(&disk, &client.sent, &owed(&client, GIVEN_UP_MOST)).unwrap();
        // A killed writer leaves the room that it allocated ahead.
        assert_eq!(found.first > 0, ended != Ended::Killed, "{ended:?}");
        again.push(20).and_then(|()| again.sync()).unwrap();
        read(&disk, &again.sent, &owed(&again, GIVEN_UP_MOST)).unwrap();

        // If the start is stopped at any operation, the result is a normal directory, once there is room.
        let mut random = Random(3);
        for boundary in &past {
            for disk in [
                boundary.kill(),
                boundary.lose_power(Luck::Some(50), &mut random),
            ] {
                if let Err(broken) = recover(&disk, &client.sent, &owed(&client, GIVEN_UP_MOST)) {
                    panic!("{ended:?}, before {:?}: {broken:?}", boundary.op);
                }
            }
        }
    }
}

// case Archive: retention is faster
#[test]
fn on_a_full_disk_a_start_gives_up_nothing_that_is_to_be_kept() {
    for (kept_from, is_refused) in [
        (Address::ZERO, true),
        (Address(SEGMENT - 1), true),
        // This leaves some segments to evict.
        (Address(GIVEN_UP_MOST), false),
    ] {
        let (disk, client) = full(Ended::Closed).unwrap();
        let asked = asked(WhenFull::Evict {
            kept_from: Some(kept_from),
        });
        let again = Client::start(&disk, &asked, client.sent.clone());
        assert_eq!(again.is_err(), is_refused, "{kept_from}");
        drop(again);
        let found = read(&disk, &client.sent, &owed(&client, GIVEN_UP_MOST)).unwrap();
        assert_eq!(found.first == 0, is_refused, "{kept_from}");
    }
}

// case Disk: full at the start
#[test]
fn on_a_full_disk_a_start_after_a_recovery_that_was_cut_off_tells_of_the_gap_and_uses_no_address_again()
 {
    let disk = Disk::new();
    let mut client = Client::start(&disk, &asked(WhenFull::Refuse), Vec::new()).unwrap();
    while client.writer().position().0 < 4 * SEGMENT {
        client.push(50).and_then(|()| client.sync()).unwrap();
    }
    let kept = client.sent.len();
    client.push(60).unwrap();
    client.writer().publish().unwrap();
    let disk = disk.now().lose_power(Luck::Nothing, &mut Random(1));
    client.writer = None;
    let [known, lost] = [&client.sent[..kept], &client.sent[kept..]];
    disk.remember(&std::sync::Arc::default());
    drop(Writer::open_with(disk.storage(), &loom(), asked(WhenFull::Refuse)).unwrap());
    let mut evicted = 0;
    for boundary in disk.past() {
        let disk = boundary.kill();
        // Other programs take the room that a start frees before it can use it.
        disk.set_capacity(disk.used_bytes() - 1);
        let options = asked(EVICT);
        let mut again = Client::start(&disk, &options, known.to_vec()).unwrap();
        again.push(3).and_then(|()| again.sync()).unwrap();
        let owed = Owed {
            seen: again.sent.len() as u64 + 1,
            ..owed(&again, 4 * SEGMENT)
        };
        let found = read(&disk, &again.sent, &owed)
            .and_then(|found| is_named(&disk, found, &owed).map(|()| found));
        let found = found.unwrap_or_else(|broken| panic!("before {:?}: {broken:?}", boundary.op));
        let next = again.sent[kept].address;
        assert!(
            lost.iter().all(|sent| sent.address < next),
            "{:?}",
            boundary.op
        );
        evicted += u64::from(found.first > 0);
    }
    assert!(evicted > 0);
}

// case Disk: full at the start
#[test]
fn a_full_disk_with_nothing_to_give_up_refuses_the_start() {
    let disk = Disk::new();
    let mut client = Client::start(&disk, &asked(WhenFull::Refuse), Vec::new()).unwrap();
    client.push(50).and_then(|()| client.close()).unwrap();
    disk.set_capacity(disk.used_bytes());
    let refused = Client::start(&disk, &asked(EVICT), client.sent.clone());
    assert!(matches!(refused.err().unwrap(), Error::Io { .. }));
    assert_eq!(
        read(&disk, &client.sent, &owed(&client, 0)).unwrap().end,
        50
    );
}

// case Corruption: damaged index logs at a start
#[test]
fn on_a_full_disk_a_damaged_time_entry_stops_no_start() {
    let (disk, client) = full(Ended::Closed).unwrap();
    // The damaged entry is that of the first chunk of the second segment.
    let chunk = SEGMENT / CHUNK;
    let entry = crate::format::entries_before(chunk) * crate::format::TIME_ENTRY_BYTES as u64;
    let times = loom().join("times/00000000000000000000.0");
    disk.rot(&times, entry + 20, &[7; 4]);
    let mut again = Client::start(&disk, &asked(EVICT), client.sent.clone()).unwrap();
    again.push(20).and_then(|()| again.sync()).unwrap();
    let found = read(&disk, &again.sent, &owed(&again, GIVEN_UP_MOST)).unwrap();
    assert!(found.first > 0);
}

/// A writer with this many sources, each with an index, and the push of a record of the next source that does not wait.
pub fn with_sources(
    disk: &Disk,
    sources: u64,
    durability: Durability,
) -> (Writer, impl FnMut(&mut Writer) -> Option<Address>) {
    let source = |number| {
        format!(
            "[[source]]\nname = 's{number}'\n[[source.field]]\nname = 'v'\ntype = 'u64'\n\
             [[source.index]]\nname = 'v'\nvalue = 'v'\n"
        )
    };
    let defs = parse_sources(&(0..sources).map(source).collect::<String>()).unwrap();
    let mut writer = Writer::open_with(disk.storage(), &loom(), options(durability)).unwrap();
    let ids = defs.iter().map(|def| writer.define_source(def).unwrap());
    let mut records = ids.collect::<Vec<_>>().into_iter().cycle();
    let push = move |writer: &mut Writer| {
        let id = records.next().unwrap();
        writer.try_push(id, &u64::to_le_bytes(id.0.into())).unwrap()
    };
    (writer, push)
}

// case Disk: full in mid-flush
#[test]
fn a_writer_that_may_not_wait_never_waits_for_the_room_of_a_long_roll_up() {
    // The next roll-up begins at any place of the two blocks of the chunk index when the disk fills.
    for (sources, chunks) in
        (8..14).flat_map(|sources| [80, 96, 112].map(|chunks| (sources, chunks)))
    {
        let disk = Disk::new();
        let (mut writer, mut push) = with_sources(&disk, sources, Durability::None);
        while writer.stats().chunks_sealed < chunks {
            if push(&mut writer).is_none() {
                writer.wait_for_room().unwrap();
            }
        }
        disk.rule(Rule::always(Fault::Fails(ENOSPC), |op| {
            op.kind == Kind::Write && op.is_in("chunks")
        }));
        // If the writer waits for the disk, this ends its wait, and the test fails.
        let (ended, watched) = channel::<()>();
        let watch = {
            let disk = disk.clone();
            std::thread::spawn(move || {
                let waits = watched.recv_timeout(Duration::from_secs(30));
                disk.obey();
                waits == Err(RecvTimeoutError::Timeout)
            })
        };
        while push(&mut writer).is_some() {}
        drop(ended);
        assert!(
            !watch.join().unwrap(),
            "it waited: {sources} sources, {chunks} chunks"
        );
        while push(&mut writer).is_none() {
            writer.wait_for_room().unwrap();
        }
        writer.close().unwrap();
    }
}

// G3
#[test]
fn a_writer_that_needs_room_gets_it_without_a_sync_of_its_client() {
    let mut random = Random(5);
    let rarely = Duration::from_secs(3600);
    let durabilities = [
        Durability::Batch,
        Durability::Interval(rarely),
        Durability::None,
    ];
    for (sources, durability) in
        (8..14).flat_map(|sources| durabilities.map(|durability| (sources, durability)))
    {
        let disk = Disk::new();
        let (mut writer, mut push) = with_sources(&disk, sources, durability);
        while writer.stats().chunks_sealed < 512 {
            // A sync frees the blocks up to any place.
            if random.below(300) == 0 {
                writer.sync_durable().unwrap();
            }
            let since = Instant::now();
            while push(&mut writer).is_none() {
                writer.wait_for_room().unwrap();
                let waits = since.elapsed();
                assert!(waits < Duration::from_secs(30), "{sources} {durability:?}");
            }
        }
        writer.close().unwrap();
    }
}
