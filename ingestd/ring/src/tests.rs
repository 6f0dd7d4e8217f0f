//! Both ends of a ring in one process: what is pushed is taken, whole and in order, and nothing that is wrong is believed.

use std::os::fd::OwnedFd;

use crate::layout::CAPACITY_BYTES_MIN;
use crate::*;

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
    consumer.give_back();
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
