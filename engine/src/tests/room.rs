//! A start on a disk that is full.

use super::client::{CHUNK, Client, SEGMENT, options};
use super::judge::{Owed, read, recover};
use crate::error::{Error, Result};
use crate::ingest::{WhenFull, WriterOptions};
use crate::log::Durability;
use crate::log::tests::Random;
use crate::log::tests::simulated::{Disk, Luck};

/// How the writer before it ended.
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

/// A disk with six segments and a bit, that has room for no more.
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
    }
}

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
        let mut again = Client::start(&disk, &asked(WhenFull::Evict), client.sent.clone()).unwrap();
        let past = disk.past();
        let found = read(&disk, &client.sent, &owed(&client, 2 * SEGMENT)).unwrap();
        // A killed writer has the room that it allocated ahead.
        assert_eq!(found.first > 0, ended != Ended::Killed, "{ended:?}");
        again.push(20).and_then(|()| again.sync()).unwrap();
        read(&disk, &again.sent, &owed(&again, 2 * SEGMENT)).unwrap();

        // However it is stopped on its way, what is left is a directory like any other, once there is room.
        let mut random = Random(3);
        for boundary in &past {
            for disk in [
                boundary.kill(),
                boundary.lose_power(Luck::Some(50), &mut random),
            ] {
                if let Err(broken) = recover(&disk, &client.sent, &owed(&client, 2 * SEGMENT)) {
                    panic!("{ended:?}, before {:?}: {broken:?}", boundary.op);
                }
            }
        }
    }
}

#[test]
fn a_full_disk_with_nothing_to_give_up_refuses_the_start() {
    let disk = Disk::new();
    let mut client = Client::start(&disk, &asked(WhenFull::Refuse), Vec::new()).unwrap();
    client.push(50).and_then(|()| client.close()).unwrap();
    disk.set_capacity(disk.used_bytes());
    let refused = Client::start(&disk, &asked(WhenFull::Evict), client.sent.clone());
    assert!(matches!(refused.err().unwrap(), Error::Io { .. }));
    assert_eq!(
        read(&disk, &client.sent, &owed(&client, 0)).unwrap().end,
        50
    );
}
