//! Batches: payloads of one source as they are handed to the writer, and what became of them.

use crate::error::{Error, PayloadError};

/// Payloads of one source, back to back.
#[derive(Debug, Clone, Copy)]
pub enum Batch<'a> {
    /// Each of the same length, in bytes.
    Fixed {
        bytes: &'a [u8],
        record_bytes: usize,
    },
    /// Each behind its length as a little-endian `u16`.
    Framed { bytes: &'a [u8] },
}

/// What became of a batch.
#[derive(Debug, Default)]
pub struct Pushed {
    pub stored: u64,
    /// Payload bytes of those.
    pub stored_bytes: u64,
    pub refused_count: u64,
    /// The first of those, at most `REASONS_MAX`, with the reasons.
    pub refused: Vec<Refused>,
    /// How many bytes of the batch were dealt with: all, unless the log was full.
    pub taken_bytes: usize,
}

/// How many refused payloads of a batch are told with their reasons; the others are only counted.
pub const REASONS_MAX: usize = 16;

/// A payload that was not stored.
#[derive(Debug)]
pub struct Refused {
    /// Its place in the batch, from 0.
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

    /// How many bytes of the batch a payload of it takes.
    #[inline]
    pub(super) fn frame_bytes(&self, payload: &[u8]) -> usize {
        match self {
            Batch::Fixed { .. } => payload.len(),
            Batch::Framed { .. } => 2 + payload.len(),
        }
    }

    /// Its payloads in order; the last is an error where the batch ends inside it.
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
                // Of length 0 there would be no end of records.
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
