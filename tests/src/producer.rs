//! A producer that keeps a list: the records that it pushed, those that a sync acknowledged and when, and where it pushed payloads that are
//! no records.
//!
//! Whatever happens then to the daemon or the host, `Life` knows which records must be there and which may be. `Holding` knows which are
//! there: the engine reads them, and every record must be whole, in the order of its number, and no older than the one before.

use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use ingestd::client::{Client, ClientError};
use ingestd::protocol::{ErrorCode, Shape, Synced};
use loom_engine::TimeRange;
use loom_engine::query::{Directory, Poll, Snapshot, raw_scan};
use loom_engine::schema::LossReason;

use crate::probe;

/// A payload that fits no layout of the source.
const MISFIT: [u8; 3] = *b"bad";

/// The acknowledgement of a sync.
#[derive(Copy, Clone, Debug)]
pub struct Ack {
    pub at: Instant,
    /// Every record with a lower number is there.
    pub below: u64,
    pub refused: u64,
}

/// The list of one connection.
#[derive(Clone, Debug, Default)]
pub struct Life {
    first: u64,
    /// Records with the numbers from `first` up to this one may have reached the daemon.
    pub pushed: u64,
    pub acks: Vec<Ack>,
    /// Records below this number were acknowledged as durable.
    pub durable: u64,
    /// For each misfit, the number of the record that followed it.
    misfits: Vec<u64>,
}

impl Life {
    /// The life of a producer whose first record has this number.
    pub fn from(first: u64) -> Life {
        Life {
            first,
            pushed: first,
            durable: first,
            ..Life::default()
        }
    }

    /// Connects and calls `push` until it returns false or the daemon is gone.
    pub fn live(
        &mut self,
        dir: &Path,
        push: impl FnMut(&mut Pushing<'_>) -> Result<bool, ClientError>,
    ) -> Result<()> {
        match self.push_while(dir, push) {
            Ok(()) => Ok(()),
            Err(error) if is_end(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Connects, pushes `records` records, and waits until they are acknowledged.
    pub fn push(&mut self, dir: &Path, records: u64) -> Result<()> {
        self.live(dir, |pushing| {
            pushing.push(records)?;
            pushing.sync()?;
            Ok(false)
        })
    }

    fn push_while(
        &mut self,
        dir: &Path,
        mut push: impl FnMut(&mut Pushing<'_>) -> Result<bool, ClientError>,
    ) -> Result<(), ClientError> {
        let client = Client::connect(dir)?;
        let source = client.define_one(&probe::definition())?;
        let mut pushing = Pushing {
            client,
            source,
            life: self,
            payloads: Vec::new(),
        };
        while push(&mut pushing)? {}
        Ok(())
    }

    /// How many records must be there, from number 0 on.
    pub fn acknowledged(&self) -> u64 {
        self.acks.last().map_or(self.first, |ack| ack.below)
    }

    /// How many misfits the ledger may count if a directory holds these records: at least those before the last record. If retention
    /// removed some of this life's records, it may have removed losses too, so none is required.
    pub fn refused(&self, holding: &Holding) -> RangeInclusive<u64> {
        let before = self.misfits.iter().filter(|next| **next < holding.end);
        let told = self.acks.last().map_or(0, |ack| ack.refused);
        let least = match holding.oldest > self.first {
            true => 0,
            false => told.max(before.count() as u64),
        };
        least..=self.misfits.len() as u64
    }

    /// Fails unless all acknowledged records are there, and no more than were pushed.
    pub fn hold(&self, there: u64) -> Result<()> {
        let range = self.acknowledged()..=self.pushed.max(self.first);
        ensure!(
            range.contains(&there),
            "{there} records are there, not {range:?}"
        );
        Ok(())
    }
}

/// A connection, and the life that it records.
pub struct Pushing<'a> {
    pub client: Client,
    source: loom_engine::SourceId,
    pub life: &'a mut Life,
    payloads: Vec<u8>,
}

impl Pushing<'_> {
    /// Pushes the next `records` records as one batch.
    pub fn push(&mut self, records: u64) -> Result<(), ClientError> {
        let from = self.life.pushed;
        self.payloads.clear();
        (from..from + records).for_each(|number| probe::append(number, &mut self.payloads));
        self.life.pushed += records;
        let record_bytes = probe::PAYLOAD_BYTES as u16;
        self.client
            .push_batch(self.source, Shape::Fixed { record_bytes }, &self.payloads)
    }

    /// Pushes a payload that must be refused.
    pub fn push_misfit(&mut self) -> Result<(), ClientError> {
        self.life.misfits.push(self.life.pushed);
        self.client.push(self.source, &MISFIT)
    }

    pub fn sync(&mut self) -> Result<(), ClientError> {
        let synced = self.client.sync()?;
        self.note(synced)
    }

    pub fn sync_durable(&mut self) -> Result<(), ClientError> {
        let synced = self.client.sync_durable()?;
        self.note(synced)?;
        self.life.durable = self.life.acknowledged();
        Ok(())
    }

    /// The source of the probe waits when the log is full and refuses only misfits, so everything else must be stored, unless the log
    /// fails.
    fn note(&mut self, Synced { counts, .. }: Synced) -> Result<(), ClientError> {
        let life = &mut *self.life;
        let (records, misfits) = (life.pushed - life.first, life.misfits.len() as u64);
        if counts.dropped > 0 {
            let message = format!("{} records are dropped", counts.dropped);
            return Err(ClientError::Daemon {
                code: ErrorCode::Failed,
                message,
            });
        }
        if (counts.stored, counts.refused, counts.dropped) != (records, misfits, 0) {
            return Err(ClientError::Protocol(format!(
                "{counts:?} after {records} records and {misfits} misfits"
            )));
        }
        life.acks.push(Ack {
            at: Instant::now(),
            below: life.pushed,
            refused: misfits,
        });
        Ok(())
    }
}

/// True if the daemon is gone or reports that its log fails.
fn is_end(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Io(_)
            | ClientError::NotRunning(_)
            | ClientError::Stopped(_)
            | ClientError::Daemon {
                code: ErrorCode::Failed,
                ..
            }
    )
}

/// The probe's records in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holding {
    /// The number of the first record. There is no hole, but retention may have removed the first ones.
    pub oldest: u64,
    pub end: u64,
    /// Misfits in the ledger.
    pub refused: u64,
    /// Losses of an unknown number of records: gaps.
    pub unknown: u64,
}

impl Holding {
    pub fn of(dir: &Path) -> Result<Holding> {
        /// A running daemon may evict records during the reading, which is then repeated.
        const LOOKS_MOST: usize = 100;
        let directory = Directory::open(dir)?;
        for _ in 1..LOOKS_MOST {
            match Holding::seen_by(&directory.snapshot()?) {
                Err(error)
                    if matches!(
                        error.downcast_ref(),
                        Some(loom_engine::Error::Evicted { .. })
                    ) => {}
                seen => return seen,
            }
        }
        Holding::seen_by(&directory.snapshot()?)
    }

    fn seen_by(snapshot: &Snapshot) -> Result<Holding> {
        let mut holding = Holding {
            oldest: 0,
            end: 0,
            refused: 0,
            unknown: 0,
        };
        for loss in snapshot.losses(&Poll::never())? {
            match loss.records {
                // The ledger also has records that a failed log could not take, with another reason.
                Some(records) if loss.reason == LossReason::Malformed.label() => {
                    holding.refused += records
                }
                Some(_) => {}
                None => holding.unknown += 1,
            }
        }
        let Some(source) = snapshot.catalog().find("probe") else {
            return Ok(holding);
        };
        let mut newer: Option<(u64, loom_engine::Timestamp)> = None;
        let mut wrong = None;
        raw_scan(
            snapshot,
            source.id,
            TimeRange::ALL,
            &Poll::never(),
            |record| {
                let number = probe::number(record.payload);
                let fits = match (number, newer) {
                    (Some(number), Some((next, ts))) => number + 1 == next && record.ts <= ts,
                    (number, _) => number.is_some(),
                };
                if !fits {
                    wrong = Some(format!(
                        "record {number:?} of {:?} at {} lies before record and time {newer:?}",
                        record.ts, record.address
                    ));
                    return ControlFlow::Break(());
                }
                if newer.is_none() {
                    holding.end = number.map_or(0, |number| number + 1);
                }
                newer = number.map(|number| (number, record.ts));
                ControlFlow::Continue(())
            },
        )?;
        if let Some(wrong) = wrong {
            bail!("missing, repeated, torn or out of order: {wrong}");
        }
        holding.oldest = newer.map_or(0, |(number, _)| number);
        Ok(holding)
    }
}

/// Waits until every loss that the daemon knows is in the log.
pub fn losses_recorded(dir: &Path) -> Result<()> {
    let client = Client::connect(dir)?;
    let recorded = crate::daemon::wait_until(|| {
        let status: serde_json::Value = serde_json::from_str(&client.status()?)?;
        let left = status
            .get("pending_losses")
            .context("no number of unrecorded losses")?;
        Ok(left.as_u64() == Some(0))
    })?;
    ensure!(recorded, "losses are not recorded after a minute");
    Ok(())
}
