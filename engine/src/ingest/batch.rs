//! Batches: the payloads of one source as they are handed to the writer, how they are stored, and the report of what was stored and
//! refused.

use std::sync::Arc;

use crate::error::{Error, PayloadError, Result};
use crate::proven::at;
use crate::schema::Layout;
use crate::types::{SourceId, Timestamp};

use super::intake::check;
use super::writer::Writer;

/// Payloads of one source, back to back.
#[derive(Debug, Clone, Copy)]
pub enum Batch<'a> {
    /// Payloads of one length, in bytes.
    Fixed {
        bytes: &'a [u8],
        record_bytes: usize,
    },
    /// Each payload stands behind its length, a little-endian `u16`.
    Framed { bytes: &'a [u8] },
}

/// The outcome of storing a batch.
#[derive(Debug, Default)]
pub struct Pushed {
    pub stored: u64,
    /// Payload bytes of the stored records.
    pub stored_bytes: u64,
    pub refused_count: u64,
    /// The first refused payloads, at most `REASONS_MAX`, with the reasons.
    pub refused: Vec<Refused>,
    /// The bytes of the batch that were stored or refused: all of them, unless the log was full.
    pub taken_bytes: usize,
}

/// At most this many refused payloads of a batch are reported with their reasons; the others are only counted.
pub const REASONS_MAX: usize = 16;

/// A payload that was not stored.
#[derive(Debug)]
pub struct Refused {
    /// The payload's place in the batch, from 0.
    pub ordinal: u64,
    pub reason: Error,
}

impl Pushed {
    pub(super) fn refuse(&mut self, ordinal: u64, reason: Error) {
        self.refused_count += 1;
        if self.refused.len() < REASONS_MAX {
            self.refused.push(Refused { ordinal, reason });
        }
    }
}

impl<'a> Batch<'a> {
    pub(super) fn bytes(&self) -> &'a [u8] {
        match *self {
            Batch::Fixed { bytes, .. } | Batch::Framed { bytes } => bytes,
        }
    }

    /// The bytes of the batch that this payload takes, with its length if the batch is framed.
    #[inline]
    pub(super) fn frame_bytes(&self, payload: &[u8]) -> usize {
        match self {
            Batch::Fixed { .. } => payload.len(),
            Batch::Framed { .. } => 2 + payload.len(),
        }
    }

    /// The payloads in order. The last is an error if the batch ends inside it.
    pub fn payloads(
        &self,
    ) -> impl Iterator<Item = std::result::Result<&'a [u8], PayloadError>> + use<'a> {
        let (mut rest, fixed) = match *self {
            Batch::Fixed {
                bytes,
                record_bytes,
            } => (bytes, Some(record_bytes)),
            Batch::Framed { bytes } => (bytes, None),
        };
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let frame = match fixed {
                // Payloads of length 0 would never end.
                Some(length) => Some((length.max(1), rest)),
                None => rest
                    .split_first_chunk()
                    .map(|(length, body)| (usize::from(u16::from_le_bytes(*length)), body)),
            };
            let payload = frame.and_then(|(length, body)| body.split_at_checked(length));
            let found = rest.len();
            rest = payload.map_or(&[], |(_, rest)| rest);
            let least = frame.map_or(2, |(length, _)| length);
            Some(
                payload
                    .map(|(payload, _)| payload)
                    .ok_or(PayloadError::TooShort { found, least }),
            )
        })
    }
}

impl Writer {
    /// Appends the records of a batch with one arrival time. Refused payloads are reported, and the rest is stored. Waits while both staged
    /// blocks are full.
    pub fn push_batch(&mut self, source: SourceId, batch: &Batch<'_>) -> Result<Pushed> {
        self.push_payloads::<true>(source, batch)
    }

    /// As `push_batch`, but returns instead of waiting. The caller goes on at `taken_bytes`.
    pub fn try_push_batch(&mut self, source: SourceId, batch: &Batch<'_>) -> Result<Pushed> {
        self.push_payloads::<false>(source, batch)
    }

    fn push_payloads<const WAIT: bool>(
        &mut self,
        source: SourceId,
        batch: &Batch<'_>,
    ) -> Result<Pushed> {
        let layout = Arc::clone(self.intakes.layout(&self.catalog, source)?);
        let now = self.clock.now();
        let mut pushed = Pushed::default();
        let stored = match batch {
            Batch::Fixed {
                bytes,
                record_bytes,
            } if self.intakes.is_plain(source, *record_bytes) => {
                self.append_run::<WAIT>(source, now, bytes, *record_bytes, &mut pushed)
            }
            _ => self.append_each::<WAIT>(source, now, batch, &layout, &mut pushed),
        };
        match stored {
            // The records stored before the error are reported first. The next call meets the error again.
            Err(error) if WAIT || pushed.taken_bytes == 0 => Err(error),
            _ => Ok(pushed),
        }
    }

    /// Stores payloads of one length that need no check. Stops before one that would have to wait, if waiting is not allowed.
    fn append_run<const WAIT: bool>(
        &mut self,
        source: SourceId,
        now: Timestamp,
        payloads: &[u8],
        payload_bytes: usize,
        pushed: &mut Pushed,
    ) -> Result<()> {
        let mut rest = payloads;
        while rest.len() >= payload_bytes {
            if !self.can_append::<WAIT>()? {
                return Ok(());
            }
            let records = self.chunk.push_run(source, now, rest, payload_bytes);
            if records == 0 {
                self.seal()?;
                continue;
            }
            let taken_bytes = records * payload_bytes;
            rest = at(rest, taken_bytes..);
            self.stats.records += records as u64;
            pushed.stored += records as u64;
            pushed.stored_bytes += taken_bytes as u64;
            pushed.taken_bytes += taken_bytes;
        }
        if !rest.is_empty() {
            let (found, least) = (rest.len(), payload_bytes);
            pushed.refuse(
                pushed.stored,
                PayloadError::TooShort { found, least }.into(),
            );
            pushed.taken_bytes += rest.len();
        }
        Ok(())
    }

    /// Checks each payload against the source's layout and stores those that fit. Stops before one that would have to wait, if waiting is
    /// not allowed.
    fn append_each<const WAIT: bool>(
        &mut self,
        source: SourceId,
        now: Timestamp,
        batch: &Batch<'_>,
        layout: &Layout,
        pushed: &mut Pushed,
    ) -> Result<()> {
        for (ordinal, payload) in (0u64..).zip(batch.payloads()) {
            let checked = payload.map_err(Error::from).and_then(|payload| {
                check(layout, payload, self.intakes.payload_bytes_max)?;
                Ok(payload)
            });
            match checked {
                Ok(payload) => {
                    if self.append::<WAIT>(source, now, payload)?.is_none() {
                        return Ok(());
                    }
                    pushed.stored += 1;
                    pushed.stored_bytes += payload.len() as u64;
                }
                Err(reason) => pushed.refuse(ordinal, reason),
            }
            pushed.taken_bytes += payload.map_or(0, |payload| batch.frame_bytes(payload));
        }
        pushed.taken_bytes = batch.bytes().len();
        Ok(())
    }
}
