//! Runs of a chunk as a query uses them: the part within a time range, the payloads at a stride, the rows. What is done record by
//! record in `chunk_cursor.rs` is the naive form of each.

use std::cell::Cell;

use super::chunk_cursor::{Row, record_ts};
use crate::format::{RECORD_HEADER_BYTES, RecordHeader, Run};
use crate::proven::{at, at_mut};
use crate::schema::Layout;
use crate::types::{Key, TimeRange, Timestamp, ValueRange};

/// The part of a run that lies within the times, and when its first and last record arrived. Arrivals do not decrease.
pub(crate) fn within(run: &Run, chunk: &[u8], times: TimeRange) -> Option<(Run, TimeRange)> {
    let last = run.records.checked_sub(1)?;
    let whole = TimeRange {
        first: run.arrival(chunk, 0),
        last: run.arrival(chunk, last),
    };
    if times.covers(whole) {
        return Some((*run, whole));
    }
    let first = count_while(run.records, |nth| run.arrival(chunk, nth) < times.first);
    let end = count_while(run.records, |nth| run.arrival(chunk, nth) <= times.last);
    let last = end.checked_sub(1).filter(|last| *last >= first)?;
    let part = Run {
        offset: run.offset_of(first),
        records: end - first,
        ..*run
    };
    let times = TimeRange {
        first: run.arrival(chunk, first),
        last: run.arrival(chunk, last),
    };
    Some((part, times))
}

/// Of how many of the first records something holds that holds of no later one.
fn count_while(records: u32, holds: impl Fn(u32) -> bool) -> u32 {
    let (mut low, mut high) = (0, records);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Of the keys from `from` on leaves those in a range, in their order. There is no branch for each: which they are cannot be predicted.
pub(crate) fn keep_within(keys: &mut Vec<Key>, from: usize, range: ValueRange) {
    if range == ValueRange::ALL {
        return;
    }
    let width = range.max.0.checked_sub(range.min.0);
    let mut kept = 0;
    if let Some(width) = width {
        let keys = at_mut(keys, from..);
        let keys = Cell::from_mut(keys).as_slice_of_cells();
        for key in keys {
            at(keys, kept).set(key.get());
            kept += usize::from(key.get().0.wrapping_sub(range.min.0) <= width);
        }
    }
    keys.truncate(from + kept);
}

/// Gives `rows` the records of a run.
pub(crate) fn rows_of_run(layout: &Layout, run: &Run, chunk: &[u8], rows: &mut Vec<Row>) {
    let (length, anchor_ns) = (run.payload_bytes, run.anchor.0);
    let first = run.offset + RECORD_HEADER_BYTES as u32;
    let step = run.entry_bytes() as u32;
    let entries = run.entries(chunk).chunks_exact(run.entry_bytes());
    // As many as entries, in a form of known length: rows are written without a look at the vector's room.
    rows.extend(entries.zip(0..run.records).map(|(entry, nth)| {
        let (head, rest) = entry
            .split_first_chunk::<RECORD_HEADER_BYTES>()
            .expect("an entry begins with its header");
        let delta_ns = i64::from(RecordHeader::decode(*head).delta_ns);
        let arrival = Timestamp(anchor_ns.saturating_add(delta_ns));
        let payload = at(rest, ..usize::from(length));
        Row {
            ts: record_ts(layout, arrival, payload),
            start: first + nth * step,
            length,
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CHUNK_BYTES_MIN, ChunkBuilder, RecordIter, walk_runs};
    use crate::schema::Payloads;
    use crate::types::{Address, SourceId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_that_are_kept_are_those_in_the_range(
            keys in prop::collection::vec(prop_oneof![0u64..9, any::<u64>(), u64::MAX - 3..], 0..60),
            min in prop_oneof![0u64..9, any::<u64>(), u64::MAX - 3..],
            max in prop_oneof![0u64..9, any::<u64>(), u64::MAX - 3..],
            from in 0usize..9,
        ) {
            let range = ValueRange { min: Key(min), max: Key(max) };
            let mut kept: Vec<Key> = keys.into_iter().map(Key).collect();
            let from = from.min(kept.len());
            let (before, behind) = kept.split_at(from);
            let wanted = behind.iter().filter(|key| range.contains(**key));
            let expected: Vec<Key> = before.iter().chain(wanted).copied().collect();
            keep_within(&mut kept, from, range);
            prop_assert_eq!(kept, expected);
        }

        #[test]
        fn the_part_of_a_run_is_what_a_walk_finds_in_time(
            steps in prop::collection::vec(0i64..4, 1..60),
            first in -2i64..130,
            length in -2i64..130,
        ) {
            let mut chunk = ChunkBuilder::new(CHUNK_BYTES_MIN);
            let mut now = 0;
            for step in &steps {
                now += step;
                chunk.push(SourceId(1), Timestamp(now), &[7; 20]);
            }
            let bytes = chunk.seal(&[7; 16], Address(0)).0.to_vec();
            let times = TimeRange { first: Timestamp(first), last: Timestamp(first + length) };
            let walked: Vec<(u32, Timestamp)> = RecordIter::new(&bytes, CHUNK_BYTES_MIN)
                .map(|record| record.unwrap())
                .filter(|record| times.contains(record.arrival))
                .map(|record| (record.offset, record.arrival))
                .collect();
            let mut runs = Vec::new();
            walk_runs(&bytes, |run| runs.push(run)).unwrap();
            prop_assert_eq!(runs.len(), 1);
            let found = within(&runs[0], &bytes, times);
            let of_part = |(part, _): &(Run, TimeRange)| {
                (0..part.records).map(|nth| (part.offset_of(nth), part.arrival(&bytes, nth))).collect::<Vec<_>>()
            };
            prop_assert_eq!(found.as_ref().map_or(Vec::new(), of_part), walked.clone());
            if let Some((part, span)) = found {
                prop_assert_eq!(Some(span.first), walked.first().map(|found| found.1));
                prop_assert_eq!(Some(span.last), walked.last().map(|found| found.1));
                prop_assert_eq!(Payloads::of_run(&part, &bytes).iter().count(), walked.len());
            }
        }
    }
}
