//! The batches of a client that no daemon has acknowledged: first those that were sent, then the others.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use loom_engine::{SourceId, TimeRange, Timestamp};

use super::{Client, ClientError};
use crate::protocol::Shape;

#[derive(Default)]
pub(super) struct Kept {
    batches: VecDeque<Batch>,
    /// How many of the first batches were sent, in full or in part, over the current connection.
    sent: usize,
    bytes: usize,
}

pub(super) struct Batch {
    pub(super) source: SourceId,
    pub(super) records: u64,
    shape: Shape,
    bytes: Vec<u8>,
    since: Instant,
}

impl Kept {
    /// Keeps a copy until it is acknowledged.
    pub(super) fn keep(
        &mut self,
        source: SourceId,
        shape: Shape,
        payloads: &[u8],
    ) -> Result<(), ClientError> {
        let records = shape.records(payloads).ok_or(ClientError::Ragged {
            bytes: payloads.len(),
        })?;
        if records > 0 {
            self.bytes += payloads.len();
            self.batches.push_back(Batch {
                source,
                records,
                shape,
                bytes: payloads.to_vec(),
                since: Instant::now(),
            });
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The age of the oldest batch.
    pub(super) fn age(&self) -> Duration {
        self.batches
            .front()
            .map_or(Duration::ZERO, |batch| batch.since.elapsed())
    }

    /// Sends the batches that were not sent. It sends nothing over a connection that is known to be over, so those batches are certainly unsent.
    pub(super) fn send(&mut self, client: &Client) -> Result<(), ClientError> {
        while let Some(batch) = self.batches.get(self.sent) {
            if client.is_hung_up(Duration::ZERO) {
                return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
            }
            self.sent += 1;
            client.push_batch(batch.source, batch.shape, &batch.bytes)?;
        }
        Ok(())
    }

    /// Drops so many of the oldest sent records, and returns how many were missing.
    pub(super) fn acknowledge(&mut self, mut records: u64) -> u64 {
        while records > 0 && self.sent > 0 {
            let Some(batch) = self.batches.front_mut() else {
                break;
            };
            if batch.records > records {
                let before = batch.bytes.len();
                batch.drop_first(records);
                self.bytes -= before - batch.bytes.len();
                return 0;
            }
            records -= batch.records;
            self.pop();
        }
        records
    }

    pub(super) fn has_sent(&self) -> bool {
        self.sent > 0
    }

    /// Takes the oldest batch that was sent.
    pub(super) fn take_sent(&mut self) -> Option<Batch> {
        if self.sent == 0 {
            return None;
        }
        self.pop()
    }

    /// The connection took none of the rest, so the next connection gets all of it.
    pub(super) fn unsend(&mut self) {
        self.sent = 0;
    }

    /// How many records no daemon has got.
    pub(super) fn unsent(&self) -> u64 {
        let unsent = self.batches.iter().skip(self.sent);
        unsent.map(|batch| batch.records).sum()
    }

    fn pop(&mut self) -> Option<Batch> {
        let batch = self.batches.pop_front()?;
        self.sent = self.sent.saturating_sub(1);
        self.bytes -= batch.bytes.len();
        Some(batch)
    }
}

impl Batch {
    fn drop_first(&mut self, records: u64) {
        let mut rest = self.bytes.as_slice();
        for _ in 0..records {
            rest = self.shape.split(rest).map_or(&[][..], |(_, rest)| rest);
        }
        self.bytes = rest.to_vec();
        self.records -= records;
    }

    /// The earliest and the latest time of the payloads, which begin with their own times.
    pub(super) fn own_times(&self) -> Option<TimeRange> {
        let mut rest = self.bytes.as_slice();
        let payloads = std::iter::from_fn(|| {
            let (payload, after) = self.shape.split(rest)?;
            rest = after;
            Some(payload)
        });
        let times = payloads
            .filter_map(|payload| payload.first_chunk())
            .map(|time| Timestamp(i64::from_le_bytes(*time)));
        times
            .map(|time| TimeRange {
                first: time,
                last: time,
            })
            .reduce(hull)
    }
}

/// The shortest range that contains both.
pub(super) fn hull(a: TimeRange, b: TimeRange) -> TimeRange {
    TimeRange {
        first: a.first.min(b.first),
        last: a.last.max(b.last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: SourceId = SourceId(1);
    const FIXED: Shape = Shape::Fixed { record_bytes: 8 };

    fn numbers(numbers: std::ops::Range<i64>) -> Vec<u8> {
        numbers.flat_map(i64::to_le_bytes).collect()
    }

    #[test]
    fn what_is_acknowledged_goes_in_the_middle_of_a_batch_too() {
        let mut kept = Kept::default();
        kept.keep(SOURCE, FIXED, &numbers(0..10)).unwrap();
        let framed: Vec<u8> = (10..20i64)
            .flat_map(|n| [&8u16.to_le_bytes()[..], &n.to_le_bytes()].concat())
            .collect();
        kept.keep(SOURCE, Shape::Framed, &framed).unwrap();
        kept.keep(SOURCE, FIXED, &numbers(20..23)).unwrap();
        kept.sent = 2;
        assert_eq!(kept.unsent(), 3);
        assert_eq!(kept.acknowledge(4), 0);
        assert_eq!(kept.bytes(), 6 * 8 + 10 * 10 + 3 * 8);
        assert_eq!(kept.acknowledge(9), 0);
        assert_eq!(kept.bytes(), 7 * 10 + 3 * 8);
        let last = kept.take_sent().unwrap();
        let times = last.own_times().unwrap();
        assert_eq!((last.records, times.first.0, times.last.0), (7, 13, 19));
        assert!(kept.take_sent().is_none(), "the third was not sent");
        assert_eq!(kept.acknowledge(1), 1, "nothing that was sent is left");
        assert_eq!((kept.unsent(), kept.bytes()), (3, 24));
    }

    #[test]
    fn half_a_payload_is_not_kept() {
        let mut kept = Kept::default();
        let nothing = Shape::Fixed { record_bytes: 0 };
        for (shape, bytes) in [
            (FIXED, &[0; 12][..]),
            (Shape::Framed, &[3, 0, 1]),
            (nothing, &[1]),
        ] {
            assert!(matches!(
                kept.keep(SOURCE, shape, bytes),
                Err(ClientError::Ragged { .. })
            ));
        }
        assert_eq!(kept.bytes(), 0);
    }
}
