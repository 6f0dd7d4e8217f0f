//! Tests both ends of a ring in one process: records arrive whole and in order, and invalid marks are detected.

use std::os::fd::OwnedFd;

use super::layout::CAPACITY_BYTES_MIN;
use super::*;

const CAPACITY: u64 = CAPACITY_BYTES_MIN;

fn ring(stamps: Stamps) -> (Consumer, Producer) {
    let (consumer, descriptor) = Consumer::create(CAPACITY, stamps, WhenFull::Wait).unwrap();
    (consumer, Producer::open(descriptor).unwrap())
}

fn taken(consumer: &mut Consumer) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    consumer.look().unwrap();
    while let Some(head) = consumer.next().unwrap() {
        let mut record = vec![0; head.bytes.into()];
        consumer.take(head, &mut record);
        records.push(record);
    }
    consumer.batch().stored();
    records
}

#[test]
fn records_of_any_length_come_out_as_they_went_in() {
    let (mut consumer, mut producer) = ring(Stamps::None);
    for round in 0..300usize {
        let lengths = [0, 1, 7, 8, 9, 48, round * 61];
        let sent = lengths.map(|length| vec![round as u8; length]);
        for record in &sent {
            producer.push(record).unwrap();
        }
        assert_eq!(taken(&mut consumer), sent);
    }
    let longest = vec![7; 65_528];
    producer.push(&longest).unwrap();
    assert_eq!(taken(&mut consumer), [longest]);
    assert_eq!(
        producer.push(&[0; 65_529]),
        Err(PushError::TooLong {
            bytes: 65_529,
            limit: 65_528
        })
    );
}

#[test]
fn a_full_ring_takes_no_record_until_place_is_given_back() {
    let (mut consumer, mut producer) = ring(Stamps::None);
    let mut pushed = 0;
    while producer.push(&[1; 56]).is_ok() {
        pushed += 1;
    }
    assert_eq!(pushed, CAPACITY / 64);
    assert_eq!(producer.push(&[1; 56]), Err(PushError::Full));
    producer.drop_one();
    assert_eq!(producer.untaken(), pushed);
    assert_eq!(consumer.dropped(), Ok(1));
    assert_eq!(consumer.dropped(), Ok(0));
    assert_eq!(taken(&mut consumer).len() as u64, pushed);
    assert_eq!(producer.untaken(), 0);
    producer.push(&[1; 56]).unwrap();
}

// A client reads ticks only there.
#[cfg(target_arch = "x86_64")]
#[test]
fn ticks_become_the_time_of_the_calibration() {
    let calibration = Calibration {
        ticks: 0,
        time_ns: 1_000_000_000,
        rate: 0,
    };
    let (mut consumer, mut producer) = ring(Stamps::Ticks(calibration));
    producer.push(b"x").unwrap();
    let expected = [&1_000_000_000i64.to_le_bytes()[..], b"x"].concat();
    assert_eq!(taken(&mut consumer), [expected]);
}

#[test]
fn without_a_counter_the_stamp_is_the_time_of_day() {
    let (mut consumer, mut producer) = ring(Stamps::Realtime);
    let now = || {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        i64::try_from(since.as_nanos()).unwrap()
    };
    let before = now();
    producer.push(b"").unwrap();
    let stamp = i64::from_le_bytes(taken(&mut consumer)[0][..].try_into().unwrap());
    assert!((before..=now()).contains(&stamp));
}

#[test]
fn a_record_that_is_too_long_is_reported_without_its_stamp() {
    let (_consumer, mut producer) = ring(Stamps::Realtime);
    let too_long = PushError::TooLong {
        bytes: 65_521,
        limit: 65_520,
    };
    assert_eq!(producer.push(&[0; 65_521]), Err(too_long));
    producer.push(&[0; 65_520]).unwrap();
}

#[test]
fn a_closed_ring_takes_nothing_more() {
    let (mut consumer, mut producer) = ring(Stamps::None);
    producer.push(b"before").unwrap();
    consumer.close();
    assert_eq!(producer.push(b"after"), Err(PushError::Closed));
    assert_eq!(taken(&mut consumer), [b"before"]);
}

#[test]
fn what_the_producer_left_outlives_it() {
    let (mut consumer, mut producer) = ring(Stamps::None);
    producer.push(b"last words").unwrap();
    drop(producer);
    assert_eq!(taken(&mut consumer), [b"last words"]);
}

#[test]
fn what_is_no_ring_is_not_mapped() {
    let file: OwnedFd = tempfile::tempfile().unwrap().into();
    assert!(matches!(Producer::open(file), Err(RingError::NotARing(_))));
    assert!(matches!(
        Consumer::create(12_345, Stamps::None, WhenFull::Wait),
        Err(RingError::Capacity(12_345))
    ));
}

#[test]
fn two_threads_pass_a_million_records_in_order() {
    let (mut consumer, mut producer) = ring(Stamps::None);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..1_000_000u64 {
                let record = [n.to_le_bytes(); 3].concat();
                let record = &record[..(n % 25) as usize];
                while producer.push(record) == Err(PushError::Full) {
                    std::thread::yield_now();
                }
            }
        });
        let mut n = 0u64;
        while n < 1_000_000 {
            for record in taken(&mut consumer) {
                let expected = [n.to_le_bytes(); 3].concat();
                assert_eq!(record, expected[..(n % 25) as usize]);
                n += 1;
            }
            std::thread::yield_now();
        }
    });
}

/// The state of a record that a consumer has copied and not stored.
fn copied(consumer: &mut Consumer) -> Taken {
    consumer.look().unwrap();
    while let Some(head) = consumer.next().unwrap() {
        consumer.take(head, &mut vec![0; head.bytes.into()]);
    }
    consumer.batch()
}

#[test]
fn what_a_killed_consumer_had_not_stored_is_handed_over_once_and_what_it_was_storing_is_unsure() {
    let (mut old, mut producer) = ring(Stamps::Realtime);
    let mut under_way = Vec::new();
    for n in 0..30u8 {
        producer.push(&[n]).unwrap();
        match n {
            9 => drop(taken(&mut old)),
            14 => {
                under_way.push(copied(&mut old));
                under_way[0].storing();
            }
            // The record is copied, but is not in the log yet.
            19 => under_way.push(copied(&mut old)),
            _ => {}
        }
    }
    producer.drop_one();
    // A consumer that is killed does not let go of the ring.
    std::mem::forget((old, under_way));
    let stamp = |record: &Vec<u8>| u64::from_le_bytes(record[..8].try_into().unwrap());
    let (mut next, mut to) = ring(Stamps::Realtime);
    let mut waited = producer.successor().unwrap();
    assert_eq!(waited.push(&[30]), Err(PushError::Closed));
    waited.push_waiting(&[30]).unwrap();
    let left = Left {
        unsure: 5,
        dropped: 1,
    };
    assert_eq!(
        (producer.settle(), producer.settle()),
        (left, Left::default())
    );
    assert_eq!((producer.untaken(), waited.untaken()), (15, 1));
    assert_eq!(waited.settle(), Left::default());
    for held in [&mut producer, &mut waited] {
        assert_eq!(held.hand_over(&mut to), Ok(0));
        assert_eq!(held.untaken(), 0);
    }
    let arrived = taken(&mut next);
    assert!(arrived.iter().map(|record| record[8]).eq(15..=30));
    assert!(
        arrived.iter().is_sorted_by_key(stamp),
        "they keep their times"
    );
}

#[test]
fn a_ring_that_is_full_takes_the_rest_of_another_once_there_is_room() {
    let (old, mut producer) = ring(Stamps::None);
    let mut pushed = 0u32;
    while producer.push(&pushed.to_le_bytes()).is_ok() {
        pushed += 1;
    }
    std::mem::forget(old);
    let (mut next, mut to) = ring(Stamps::None);
    to.push(b"first").unwrap();
    producer.settle();
    let mut arrived = Vec::new();
    while producer.hand_over(&mut to) == Err(PushError::Full) {
        arrived.extend(taken(&mut next));
    }
    arrived.extend(taken(&mut next));
    assert_eq!(arrived.remove(0), b"first");
    assert!(
        arrived
            .into_iter()
            .eq((0..pushed).map(|n| n.to_le_bytes().to_vec()))
    );
}

/// A ring of 4 MiB that was full and is taken, and a second mapping of its memory.
fn large() -> (Consumer, Producer, std::fs::File) {
    let bytes: u64 = 4 << 20;
    let (mut consumer, descriptor) = Consumer::create(bytes, Stamps::None, WhenFull::Wait).unwrap();
    let memory = std::fs::File::from(descriptor.try_clone().unwrap());
    let mut producer = Producer::open(descriptor).unwrap();
    while producer.push(&[7; 56]).is_ok() {}
    taken(&mut consumer);
    assert!(held_bytes(&memory) >= bytes);
    (consumer, producer, memory)
}

fn held_bytes(memory: &std::fs::File) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&memory.metadata().unwrap()) * 512
}

#[test]
fn a_daemon_that_stops_gives_memory_back_apart_from_what_may_still_be_pushed() {
    let (mut consumer, mut producer, memory) = large();
    // The daemon ends between a producer's check and its push.
    producer.push(&[9; 60_000]).unwrap();
    consumer.close();
    let under_way = consumer.batch();
    consumer.end(Ending::OfDaemon);
    assert!(held_bytes(&memory) >= 4 << 20, "a batch is still under way");
    under_way.stored();
    assert!(held_bytes(&memory) <= 128 << 10, "{}", held_bytes(&memory));
    assert_eq!(producer.push(&[1]), Err(PushError::Closed));
    let (mut next, mut to) = ring(Stamps::None);
    assert!(producer.is_final(&to), "the daemon has let go");
    assert_eq!(producer.settle(), Left::default());
    assert_eq!(producer.hand_over(&mut to), Ok(0));
    assert_eq!(taken(&mut next), [vec![9; 60_000]]);
}

#[test]
fn a_daemon_that_goes_on_without_the_client_gives_all_memory_back_and_what_came_late_is_counted() {
    let (mut consumer, mut producer, memory) = large();
    for n in 0..3 {
        producer.push(&[n; 100]).unwrap();
    }
    consumer.close();
    consumer.end(Ending::OfClient);
    assert!(held_bytes(&memory) <= 4 << 10, "{}", held_bytes(&memory));
    let (_next, mut to) = ring(Stamps::None);
    assert!(producer.is_final(&to));
    assert_eq!(producer.untaken(), 3);
    let left = Left {
        unsure: 3,
        dropped: 0,
    };
    assert_eq!(
        (producer.settle(), producer.settle()),
        (left, Left::default())
    );
    assert_eq!(producer.hand_over(&mut to), Ok(0));
    assert_eq!((to.pushed(), producer.untaken()), (0, 0));
}

#[test]
fn a_daemon_whose_log_fails_keeps_all_memory_for_the_client() {
    let (mut consumer, mut producer, memory) = large();
    producer.push(&[1; 100]).unwrap();
    let under_way = copied(&mut consumer);
    under_way.storing();
    producer.push(&[2; 100]).unwrap();
    drop((consumer, under_way));
    assert!(held_bytes(&memory) >= 4 << 20);
    let (mut next, mut to) = ring(Stamps::None);
    assert!(producer.is_final(&to));
    assert_eq!(
        producer.settle(),
        Left {
            unsure: 1,
            dropped: 0
        }
    );
    assert_eq!(producer.hand_over(&mut to), Ok(0));
    assert_eq!(taken(&mut next), [[2; 100]]);
}

#[test]
fn a_closer_closes_a_ring_and_changes_no_mark_of_the_daemon() {
    let (consumer, mut producer) = ring(Stamps::None);
    let closer = producer.closer();
    closer.close();
    assert_eq!(producer.push(b"x"), Err(PushError::Closed));
    let (_next, to) = ring(Stamps::None);
    assert!(!producer.is_final(&to), "both rings are of this run");
    consumer.end(Ending::OfDaemon);
    closer.close();
    assert!(producer.is_final(&to));
}
