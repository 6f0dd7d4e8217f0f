//! One source's records in shared memory, over all daemons that take them.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

use loom_engine::{SourceId, TimeRange, Timestamp};

use super::{Client, ClientError};
use crate::protocol::LostCause;
use crate::ring::{Left, Producer, PushError, RingError, WhenFull};

/// The pause of a client that waits for space.
pub(super) const LOOK_AGAIN: Duration = Duration::from_micros(100);
/// How far the times of records may be from the time of day, because the log's clock slews.
const SLACK_NS: i64 = 1_000_000_000;

pub(super) struct SourceRing {
    pub(super) source: SourceId,
    name: String,
    /// The daemon's ring, or one of this process while there is no daemon.
    pub(super) producer: Producer,
    /// The rings of daemons that are gone, and the one that waited, the oldest records first. There are few of them, however many daemons come and
    /// go, because a new ring has space for everything in the first one.
    held: VecDeque<Producer>,
    /// Lost records that are not in a ledger yet.
    left: Left,
    /// All records that were pushed before this time are in the log.
    since: Timestamp,
}

impl SourceRing {
    pub(super) fn new(source: SourceId, name: String, producer: Producer) -> SourceRing {
        SourceRing {
            source,
            name,
            producer,
            held: VecDeque::new(),
            left: Left::default(),
            since: now(),
        }
    }

    /// If the source drops records when the ring is full, counts one as dropped.
    pub(super) fn drops(&mut self) -> bool {
        let drops = self.producer.when_full() == WhenFull::Drop;
        if drops {
            self.producer.drop_one();
        }
        drops
    }

    /// Records that the log does not have yet.
    pub(super) fn untaken(&self) -> u64 {
        let rings = self.held.iter().chain([&self.producer]);
        rings.map(Producer::untaken).sum()
    }

    /// Everything that was pushed before that time is in the log.
    pub(super) fn synced(&mut self, begun: Timestamp) {
        self.since = begun;
    }

    /// The daemon is gone: from now on records wait.
    pub(super) fn wait_for_next(&mut self) -> Result<(), RingError> {
        if self.producer.is_successor() {
            return Ok(());
        }
        // A ring that is not handed over yet has the latest records.
        let waiting = match self.held.pop_back() {
            Some(last) if last.is_successor() => last,
            last => {
                self.held.extend(last);
                self.producer.successor()?
            }
        };
        let gone = std::mem::replace(&mut self.producer, waiting);
        // The records that were handed over to it are older than the others.
        self.held.push_front(gone);
        Ok(())
    }

    /// Whether no other daemon changes the held rings any more, assuming that the next daemon made this ring.
    pub(super) fn is_final(&self, next: &Producer) -> bool {
        self.held.iter().all(|held| held.is_final(next))
    }

    /// The next daemon's ring.
    pub(super) fn take_next(&mut self, next: Producer) {
        let waited = std::mem::replace(&mut self.producer, next);
        self.held.push_back(waited);
    }

    /// Hands everything over to the daemon's ring, and reports lost records. This takes as long as the daemon needs to make space.
    pub(super) fn hand_over(&mut self, client: &Client) -> Result<(), ClientError> {
        while let Some(held) = self.held.front_mut() {
            self.left.add(held.settle());
            loop {
                match held.hand_over(&mut self.producer) {
                    Ok(lost) => {
                        self.left.unsure += lost;
                        break;
                    }
                    Err(PushError::Full) if !client.is_hung_up(LOOK_AGAIN) => {}
                    Err(PushError::Full | PushError::Closed) => {
                        return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
                    }
                    Err(why) => return Err(why.into()),
                }
            }
            self.held.pop_front();
        }
        self.report(client)
    }

    fn report(&mut self, client: &Client) -> Result<(), ClientError> {
        let span = with_slack(self.since);
        for (cause, records, why) in [
            (
                LostCause::RingFull,
                &mut self.left.dropped,
                "the client's ring was full while no daemon ran",
            ),
            (
                LostCause::DaemonKilled,
                &mut self.left.unsure,
                "a daemon was killed while it stored them; the log may have some",
            ),
        ] {
            if *records > 0 {
                client.report_lost(cause, &self.name, *records, span, why)?;
                *records = 0;
            }
        }
        Ok(())
    }
}

/// The possible arrival times of records that were pushed between then and now.
pub(super) fn with_slack(since: Timestamp) -> TimeRange {
    TimeRange {
        first: Timestamp(since.0.saturating_sub(SLACK_NS)),
        last: Timestamp(since.max(now()).0.saturating_add(SLACK_NS)),
    }
}

/// The time of day.
pub(super) fn now() -> Timestamp {
    let since = UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
