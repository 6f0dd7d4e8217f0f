//! Producers with rings outlive their daemon: what they pushed is stored once, or counted in the ledger.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ingestd::client::{ClientError, RingClient, RingOptions};
use loom_engine::query::{Directory, Poll};

use super::support::{NUMBERS, There, eventually, numbers};

const PRODUCERS: u64 = 3;
/// What a producer pushes between two looks at whether it is to end.
const BURST: u64 = 500;
/// The least ring: it is full soon.
const SMALL_RING: u64 = 64 << 10;

pub(super) struct Place {
    _root: tempfile::TempDir,
    pub(super) dir: PathBuf,
}

impl Place {
    pub(super) fn new() -> Place {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("loom");
        Place { _root: root, dir }
    }

    pub(super) fn start(&self) -> There {
        There::start(&self.dir, &[])
    }

    fn client(&self, capacity_bytes: u64, patience: Duration) -> RingClient {
        let options = RingOptions {
            capacity_bytes,
            patience,
            ..RingOptions::default()
        };
        RingClient::connect_with(&self.dir, options).unwrap()
    }
}

pub(super) fn kill(daemon: There) {
    daemon.signal("-KILL");
    assert!(!daemon.wait());
}

pub(super) fn stop(daemon: There) {
    daemon.signal("-TERM");
    assert!(daemon.wait());
}

/// The records of the ledger, by reason.
pub(super) fn lost(dir: &Path) -> Vec<(String, u64)> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let losses = snapshot.losses(&Poll::never()).unwrap();
    let counted = losses
        .into_iter()
        .map(|loss| (loss.reason, loss.records.unwrap()));
    counted.collect()
}

/// A producer's numbers are its own: they begin where those of the one before end.
fn first_of(producer: u64) -> u64 {
    producer << 40
}

/// Pushes numbers in their order until it is to end, then syncs; returns how many it pushed. The first producer syncs on its way, too.
fn produce(place: &Place, producer: u64, counted: &AtomicU64, ends: &AtomicBool) -> u64 {
    let mut client = place.client(0, Duration::from_secs(60));
    let source = client.define_one(NUMBERS).unwrap();
    let mut pushed = 0;
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            let number = first_of(producer) + pushed;
            client.push(source, &number.to_le_bytes()).unwrap();
            pushed += 1;
        }
        counted.store(pushed, Ordering::Relaxed);
        std::thread::yield_now();
        if producer == 0 && pushed % (100 * BURST) == 0 {
            client.sync().unwrap();
        }
    }
    client.close().unwrap();
    pushed
}

/// Several producers, while the daemon ends in this way and starts again, so many times. Returns what each pushed.
fn outlive(place: &Place, times: u64, end: impl Fn(There)) -> Vec<u64> {
    let counted: Vec<AtomicU64> = (0..PRODUCERS).map(|_| AtomicU64::new(0)).collect();
    let ends = AtomicBool::new(false);
    let mut daemon = place.start();
    std::thread::scope(|scope| {
        let ends = &ends;
        let producers: Vec<_> = counted
            .iter()
            .enumerate()
            .map(|(at, counted)| scope.spawn(move || produce(place, at as u64, counted, ends)))
            .collect();
        let so_far = || -> Vec<u64> {
            let pushed = counted.iter();
            pushed.map(|one| one.load(Ordering::Relaxed)).collect()
        };
        // Of the producers from this one on: a sync waits for the next daemon.
        let more = |first: usize, than: &[u64]| {
            eventually(|| {
                let pushed = so_far();
                let mut both = pushed.iter().zip(than).skip(first);
                both.all(|(now, then)| *now > then + 7_000).then_some(())
            });
        };
        more(0, &so_far());
        for time in 0..times {
            let before = so_far();
            end(daemon);
            if time % 2 == 1 {
                // Some records wait for the next daemon.
                more(1, &before);
            }
            daemon = place.start();
            more(0, &so_far());
        }
        ends.store(true, Ordering::Relaxed);
        let pushed = producers
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect();
        stop(daemon);
        pushed
    })
}

/// Holds that each producer's records stand in their order, none twice. Returns how many there are.
fn stored_in_order(dir: &Path, pushed: &[u64]) -> u64 {
    let stored = numbers(dir);
    let mut count = 0;
    for (producer, pushed) in pushed.iter().enumerate() {
        let first = first_of(producer as u64);
        let own = stored
            .iter()
            .filter(|number| **number >> 40 == producer as u64);
        let own: Vec<u64> = own.map(|number| number - first).collect();
        assert!(
            own.windows(2).all(|two| two[0] < two[1]),
            "in order, none twice"
        );
        assert!(own.last().is_none_or(|last| last < pushed));
        count += own.len() as u64;
    }
    assert_eq!(count, stored.len() as u64);
    count
}

// G1, G9
#[test]
fn each_record_outlives_kills_of_the_daemon_once_or_is_in_the_ledger() {
    let place = Place::new();
    let pushed = outlive(&place, 6, kill);
    let stored = stored_in_order(&place.dir, &pushed);
    let lost = lost(&place.dir);
    assert!(
        lost.iter().all(|(reason, _)| reason == "daemon killed"),
        "{lost:?}"
    );
    let lost: u64 = lost.iter().map(|(_, records)| records).sum();
    let pushed: u64 = pushed.iter().sum();
    assert!(
        stored + lost >= pushed,
        "{stored} stored, {lost} lost of {pushed}"
    );
}

// G4
#[test]
fn each_record_outlives_stops_of_the_daemon_once() {
    let place = Place::new();
    let pushed = outlive(&place, 4, stop);
    assert_eq!(
        stored_in_order(&place.dir, &pushed),
        pushed.iter().sum::<u64>()
    );
    assert_eq!(lost(&place.dir), []);
}

// G9
#[test]
fn while_no_daemon_runs_a_full_ring_drops_and_counts_or_waits_as_its_source_says() {
    let place = Place::new();
    let dropping = NUMBERS.replace(
        "name = 'numbers'",
        "name = 'numbers'\non_overload = 'drop_new'",
    );
    let waiting = NUMBERS.replacen("numbers", "waiting", 1);
    let daemon = place.start();
    let mut client = place.client(SMALL_RING, Duration::from_secs(60));
    let dropping = client.define_one(&dropping).unwrap();
    client.push(dropping, &0u64.to_le_bytes()).unwrap();
    client.sync().unwrap();
    let mut other = place.client(SMALL_RING, Duration::from_secs(60));
    let waiting = other.define_one(&waiting).unwrap();
    kill(daemon);
    for n in 1..50_000u64 {
        client.push(dropping, &n.to_le_bytes()).unwrap();
    }
    let counted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            for n in 0..20_000u64 {
                other.push(waiting, &n.to_le_bytes()).unwrap();
                counted.store(n + 1, Ordering::Relaxed);
            }
            other.close().unwrap();
        });
        // Two rings of 64 KiB hold so many records of 16 bytes.
        let room = 2 * SMALL_RING / 16;
        eventually(|| (counted.load(Ordering::Relaxed) >= SMALL_RING / 16).then_some(()));
        assert!(counted.load(Ordering::Relaxed) <= room);
        let daemon = place.start();
        waits.join().unwrap();
        client.sync().unwrap();
        client.push(dropping, &50_000u64.to_le_bytes()).unwrap();
        client.close().unwrap();
        stop(daemon);
    });
    let stored = numbers(&place.dir);
    assert!(stored.is_sorted() && stored.last() == Some(&50_000));
    assert!(stored.len() as u64 > SMALL_RING / 16, "{}", stored.len());
    let waited = super::support::payloads(&place.dir, "waiting");
    assert!(
        waited
            .into_iter()
            .eq((0..20_000u64).map(|n| n.to_le_bytes().to_vec()))
    );
    let lost = lost(&place.dir);
    let dropped: u64 = lost.iter().map(|(_, records)| records).sum();
    assert_eq!(stored.len() as u64 + dropped, 50_001, "{lost:?}");
    assert!(
        lost.iter().all(|(reason, _)| reason == "overload"),
        "{lost:?}"
    );
}

// G9
#[test]
fn without_a_daemon_for_longer_than_its_patience_a_client_fails_until_one_runs() {
    let place = Place::new();
    let daemon = place.start();
    let mut client = place.client(0, Duration::from_millis(200));
    let source = client.define_one(NUMBERS).unwrap();
    kill(daemon);
    let mut pushed = 0u64;
    let error = eventually(|| match client.push(source, &pushed.to_le_bytes()) {
        Ok(()) => {
            pushed += 1;
            None
        }
        Err(error) => Some(error),
    });
    let ClientError::Absent { waiting, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((*waiting, client.untaken()), (pushed, pushed));
    let said = format!("{pushed} records wait in shared memory; start one with 'ingestd run");
    assert!(error.to_string().contains(&said), "{error}");
    assert!(matches!(client.sync(), Err(ClientError::Absent { .. })));
    let daemon = place.start();
    eventually(|| client.push(source, &pushed.to_le_bytes()).ok());
    client.close().unwrap();
    assert!(numbers(&place.dir).into_iter().eq(0..=pushed));
    stop(daemon);
    assert_eq!(lost(&place.dir), []);
}

#[test]
fn a_definition_right_after_a_kill_goes_to_the_next_daemon() {
    let place = Place::new();
    let daemon = place.start();
    let mut client = place.client(0, Duration::from_secs(60));
    let first = client.define_one(NUMBERS).unwrap();
    client.push(first, &1u64.to_le_bytes()).unwrap();
    client.sync().unwrap();
    client.push(first, &2u64.to_le_bytes()).unwrap();
    kill(daemon);
    let daemon = place.start();
    let wider = format!("{NUMBERS}[[source.field]]\nname = 'm'\ntype = 'u64'\n");
    let wider = wider.replace("[[source.index]]\nname = 'n'\nvalue = 'n'\n", "");
    let later = client
        .define_one(&NUMBERS.replacen("numbers", "later", 1))
        .unwrap();
    assert_ne!(first, later);
    client.push(later, &3u64.to_le_bytes()).unwrap();
    // The ring may still hold what was pushed in the layout before.
    client.push(first, &3u64.to_le_bytes()).unwrap();
    assert_eq!(client.define_one(&wider).unwrap(), first);
    client
        .push(first, &[4u64.to_le_bytes(), 40u64.to_le_bytes()].concat())
        .unwrap();
    kill(daemon);
    let daemon = place.start();
    let counts = client.close().unwrap().counts;
    assert_eq!(counts.refused, 0, "{counts:?}");
    stop(daemon);
    let unsure: u64 = lost(&place.dir).iter().map(|(_, records)| records).sum();
    let stored = super::support::payloads(&place.dir, "numbers").len() as u64
        + super::support::payloads(&place.dir, "later").len() as u64;
    assert!(
        (5 - unsure..=5).contains(&stored),
        "{stored} stored, {unsure} unsure"
    );
}

#[test]
fn a_client_that_ends_after_a_restart_hands_over_what_waited() {
    let place = Place::new();
    let daemon = place.start();
    let mut client = place.client(0, Duration::from_secs(60));
    let source = client.define_one(NUMBERS).unwrap();
    client.push(source, &0u64.to_le_bytes()).unwrap();
    client.sync().unwrap();
    kill(daemon);
    eventually(|| {
        client.push(source, &1u64.to_le_bytes()).unwrap();
        (client.untaken() >= 100).then_some(())
    });
    let waiting = client.untaken();
    let daemon = place.start();
    drop(client);
    eventually(|| (numbers(&place.dir).len() as u64 == 1 + waiting).then_some(()));
    stop(daemon);
}

#[test]
fn another_directory_in_the_place_of_its_own_gets_nothing() {
    let place = Place::new();
    let daemon = place.start();
    let mut client = place.client(0, Duration::from_secs(60));
    let source = client.define_one(NUMBERS).unwrap();
    client.push(source, &0u64.to_le_bytes()).unwrap();
    client.sync().unwrap();
    stop(daemon);
    std::fs::rename(&place.dir, place.dir.with_extension("before")).unwrap();
    let daemon = place.start();
    let error = client.sync().unwrap_err();
    assert!(matches!(error, ClientError::Replaced(_)), "{error}");
    let error = eventually(|| client.push(source, &1u64.to_le_bytes()).err());
    assert!(error.to_string().contains("connect again"), "{error}");
    stop(daemon);
}
