//! The bytes of a hostile producer in a ring, against the daemon's end of it.
//!
//! Input: a byte that says how records are stamped, then steps: 0 and a u64 is the producer's counter, 1 and a u64 its count of dropped records,
//! 2, a u16 and a u64 a word of the records, 3 a look by the daemon, which takes all that it finds.

use std::fs::File;
use std::os::unix::fs::FileExt;

use loom_client::ring::layout::{CAPACITY_BYTES_MIN, DROPPED_OFFSET, RECORDS_OFFSET, TAIL_OFFSET};
use loom_client::ring::{Broken, Calibration, Consumer, Stamps, WhenFull};

use crate::{SOUND, flagged, label};

/// Longer inputs only repeat the effects of shorter ones.
const STEPS_MAX: usize = 256;

pub fn run(input: &[u8]) -> String {
    let (flags, mut steps) = flagged(input);
    let stamps = match flags % 3 {
        0 => Stamps::None,
        1 => Stamps::Realtime,
        _ => Stamps::Ticks(Calibration {
            ticks: u64::from(flags),
            time_ns: i64::MAX,
            rate: u64::MAX,
        }),
    };
    let created = Consumer::create(CAPACITY_BYTES_MIN, stamps, WhenFull::Wait);
    let (mut consumer, memory) = created.expect("a small ring can be created");
    let memory = File::from(memory);
    let store = |offset: usize, word: u64| {
        let written = memory.write_all_at(&word.to_le_bytes(), offset as u64);
        written.expect("a ring's memory can be written");
    };
    for _ in 0..STEPS_MAX {
        match next(&mut steps) {
            Some(Step::Tail(word)) => store(TAIL_OFFSET, word),
            Some(Step::Dropped(word)) => store(DROPPED_OFFSET, word),
            Some(Step::Word(place, word)) => {
                let words = CAPACITY_BYTES_MIN as usize / 8;
                store(RECORDS_OFFSET + 8 * (usize::from(place) % words), word);
            }
            Some(Step::Look) => {
                if let Err(broken) = look(&mut consumer) {
                    return label(&broken);
                }
            }
            None => break,
        }
    }
    look(&mut consumer).map_or_else(|broken| label(&broken), |()| SOUND.to_owned())
}

enum Step {
    Tail(u64),
    Dropped(u64),
    Word(u16, u64),
    Look,
}

fn next(steps: &mut &[u8]) -> Option<Step> {
    let (kind, rest) = steps.split_first()?;
    let (step, rest) = match kind % 4 {
        kind @ 0..=1 => {
            let (word, rest) = rest.split_first_chunk()?;
            let word = u64::from_le_bytes(*word);
            (
                if kind == 0 {
                    Step::Tail(word)
                } else {
                    Step::Dropped(word)
                },
                rest,
            )
        }
        2 => {
            let (place, rest) = rest.split_first_chunk()?;
            let (word, rest) = rest.split_first_chunk()?;
            let (place, word) = (u16::from_le_bytes(*place), u64::from_le_bytes(*word));
            (Step::Word(place, word), rest)
        }
        _ => (Step::Look, rest),
    };
    *steps = rest;
    Some(step)
}

/// Takes everything, as the daemon does, and holds that no record reaches past what was published.
fn look(consumer: &mut Consumer) -> Result<(), Broken> {
    let mut record = [0; CAPACITY_BYTES_MIN as usize];
    let before = consumer.taken();
    let published = consumer.look()?;
    assert!(published >= before && published - before <= CAPACITY_BYTES_MIN);
    while let Some(head) = consumer.next()? {
        let Some(room) = record.get_mut(..usize::from(head.bytes)) else {
            panic!("a record of {} bytes is longer than the ring", head.bytes);
        };
        consumer.take(head, room);
        assert!(consumer.taken() <= published);
    }
    assert_eq!(consumer.taken(), published, "everything is taken");
    consumer.batch().stored();
    consumer.dropped()?;
    Ok(())
}
