//! Producers with rings outlive their daemon: what they pushed is stored once, or counted in the ledger.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ingestd::client::{ClientError, RingClient, RingOptions};
use loom_engine::SourceId;
use loom_tests::command::{eventually, says, until};

use super::outlive::{Progress, outlive};
use super::support::{
    NUMBERS, Place, There, dropping, kill, losses, lost, numbers, payloads, stop,
};

const PRODUCERS: u64 = 3;
/// A producer pushes so many records between two looks at whether it is to end.
const BURST: u64 = 500;
/// The least ring: it is full soon.
const SMALL_RING: u64 = 64 << 10;

fn client(place: &Place, capacity_bytes: u64, patience: Duration) -> RingClient {
    let options = RingOptions {
        capacity_bytes,
        patience,
        ..RingOptions::default()
    };
    RingClient::connect_with(&place.dir, options).unwrap()
}

/// A daemon, and a client that outlives it, with its source of numbers.
fn started(place: &Place) -> (There, RingClient, SourceId) {
    let daemon = place.start("");
    let mut client = client(place, 0, Duration::from_secs(60));
    let source = client.define_one(NUMBERS).unwrap();
    (daemon, client, source)
}

fn push(client: &mut RingClient, source: SourceId, number: u64) {
    client.push(source, &number.to_le_bytes()).unwrap();
}

/// A producer's numbers are its own: they begin where those of the one before end.
fn first_of(producer: u64) -> u64 {
    producer << 40
}

/// Pushes numbers in their order until it is to end, then syncs; returns how many it pushed. The first producer syncs on its way, too.
fn produce(place: &Place, producer: u64, progress: &Progress) -> u64 {
    let mut client = client(place, 0, Duration::from_secs(60));
    let source = client.define_one(NUMBERS).unwrap();
    let mut pushed = 0;
    while progress.goes_on(pushed) {
        for number in pushed..pushed + BURST {
            push(&mut client, source, first_of(producer) + number);
        }
        pushed += BURST;
        if producer == 0 && pushed % (100 * BURST) == 0 {
            client.sync().unwrap();
        }
    }
    client.close().unwrap();
    pushed
}

fn push_over(place: &Place, times: u64, end: fn(There)) -> Vec<u64> {
    outlive(place, PRODUCERS, times, end, |producer, progress| {
        produce(place, producer, &progress)
    })
}

/// Holds that each producer's records stand in their order, none twice. Returns how many there are.
fn stored_in_order(dir: &Path, pushed: &[u64]) -> u64 {
    let stored = numbers(dir);
    let mut count = 0;
    for (producer, pushed) in pushed.iter().enumerate() {
        let first = first_of(producer as u64);
        let own = stored.iter().filter(|it| **it >> 40 == producer as u64);
        let own: Vec<u64> = own.map(|number| number - first).collect();
        let in_order = own.windows(2).all(|two| two[0] < two[1]);
        assert!(in_order, "in order, none twice");
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
    let pushed = push_over(&place, 6, kill);
    let stored = stored_in_order(&place.dir, &pushed);
    let losses = losses(&place.dir);
    let by_kill = losses.iter().all(|loss| loss.reason == "daemon killed");
    assert!(by_kill, "{losses:?}");
    let (lost, pushed): (u64, u64) = (lost(&losses), pushed.iter().sum());
    assert!(
        stored + lost >= pushed,
        "{stored} stored, {lost} lost of {pushed}"
    );
}

// G4
#[test]
fn each_record_outlives_stops_of_the_daemon_once() {
    let place = Place::new();
    let pushed = push_over(&place, 4, stop);
    let all: u64 = pushed.iter().sum();
    assert_eq!(stored_in_order(&place.dir, &pushed), all);
    assert_eq!(losses(&place.dir), []);
}

// G9
#[test]
fn while_no_daemon_runs_a_full_ring_drops_and_counts_or_waits_as_its_source_says() {
    let place = Place::new();
    let waiting = NUMBERS.replacen("numbers", "waiting", 1);
    let daemon = place.start("");
    let small = || client(&place, SMALL_RING, Duration::from_secs(60));
    let (mut client, mut other) = (small(), small());
    let dropping = client.define_one(&dropping()).unwrap();
    push(&mut client, dropping, 0);
    client.sync().unwrap();
    let waiting = other.define_one(&waiting).unwrap();
    kill(daemon);
    for n in 1..50_000 {
        push(&mut client, dropping, n);
    }
    let counted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            for n in 0..20_000 {
                push(&mut other, waiting, n);
                counted.store(n + 1, Ordering::Relaxed);
            }
            other.close().unwrap();
        });
        // Two rings of 64 KiB hold so many records of 16 bytes.
        let room = 2 * SMALL_RING / 16;
        until(|| counted.load(Ordering::Relaxed) >= SMALL_RING / 16);
        assert!(counted.load(Ordering::Relaxed) <= room);
        let daemon = place.start("");
        waits.join().unwrap();
        client.sync().unwrap();
        push(&mut client, dropping, 50_000);
        client.close().unwrap();
        stop(daemon);
    });
    let stored = numbers(&place.dir);
    assert!(stored.is_sorted() && stored.last() == Some(&50_000));
    assert!(stored.len() as u64 > SMALL_RING / 16, "{}", stored.len());
    let waited = payloads(&place.dir, "waiting");
    let owed = (0..20_000u64).map(|n| n.to_le_bytes().to_vec());
    assert!(waited.into_iter().eq(owed));
    let losses = losses(&place.dir);
    assert_eq!(stored.len() as u64 + lost(&losses), 50_001, "{losses:?}");
    let by_overload = losses.iter().all(|loss| loss.reason == "overload");
    assert!(by_overload, "{losses:?}");
}

// G9
#[test]
fn without_a_daemon_for_longer_than_its_patience_a_client_fails_until_one_runs() {
    let place = Place::new();
    let daemon = place.start("");
    let mut client = client(&place, 0, Duration::from_millis(200));
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
    says(&error.to_string(), &said);
    assert!(matches!(client.sync(), Err(ClientError::Absent { .. })));
    let daemon = place.start("");
    eventually(|| client.push(source, &pushed.to_le_bytes()).ok());
    client.close().unwrap();
    assert!(numbers(&place.dir).into_iter().eq(0..=pushed));
    stop(daemon);
    assert_eq!(losses(&place.dir), []);
}

#[test]
fn a_definition_right_after_a_kill_goes_to_the_next_daemon() {
    let place = Place::new();
    let (daemon, mut client, first) = started(&place);
    push(&mut client, first, 1);
    client.sync().unwrap();
    push(&mut client, first, 2);
    kill(daemon);
    let daemon = place.start("");
    let wider = format!("{NUMBERS}[[source.field]]\nname = 'm'\ntype = 'u64'\n");
    let wider = wider.replace("[[source.index]]\nname = 'n'\nvalue = 'n'\n", "");
    let later = NUMBERS.replacen("numbers", "later", 1);
    let later = client.define_one(&later).unwrap();
    assert_ne!(first, later);
    push(&mut client, later, 3);
    // The ring may still hold what was pushed in the layout before.
    push(&mut client, first, 3);
    assert_eq!(client.define_one(&wider).unwrap(), first);
    let wide = [4u64, 40].map(u64::to_le_bytes).concat();
    client.push(first, &wide).unwrap();
    kill(daemon);
    let daemon = place.start("");
    let counts = client.close().unwrap().counts;
    assert_eq!(counts.refused, 0, "{counts:?}");
    stop(daemon);
    let unsure = lost(&losses(&place.dir)) as usize;
    let of = |name| payloads(&place.dir, name).len();
    let stored = of("numbers") + of("later");
    assert!(
        (5 - unsure..=5).contains(&stored),
        "{stored}, {unsure} unsure"
    );
}

#[test]
fn a_client_that_ends_after_a_restart_hands_over_what_waited() {
    let place = Place::new();
    let (daemon, mut client, source) = started(&place);
    push(&mut client, source, 0);
    client.sync().unwrap();
    kill(daemon);
    until(|| {
        push(&mut client, source, 1);
        client.untaken() >= 100
    });
    let waiting = client.untaken();
    let daemon = place.start("");
    drop(client);
    until(|| numbers(&place.dir).len() as u64 == 1 + waiting);
    stop(daemon);
}

#[test]
fn another_directory_in_the_place_of_its_own_gets_nothing() {
    let place = Place::new();
    let (daemon, mut client, source) = started(&place);
    push(&mut client, source, 0);
    client.sync().unwrap();
    stop(daemon);
    std::fs::rename(&place.dir, place.dir.with_extension("before")).unwrap();
    let daemon = place.start("");
    let error = client.sync().unwrap_err();
    assert!(matches!(error, ClientError::Replaced(_)), "{error}");
    let error = eventually(|| client.push(source, &1u64.to_le_bytes()).err());
    says(&error.to_string(), "connect again");
    stop(daemon);
}
