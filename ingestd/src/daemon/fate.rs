//! The fate of a push: the counts of records that the log stored, refused or dropped, the reasons, and the progress through the push.
//!
//! The recorder enters a fate in its books once; nothing here counts.

use loom_engine::ingest::Writer;
use loom_engine::schema::{LossReason, Overload, is_builtin};
use loom_engine::{Error, SourceId};

use super::buffer::Loss;
use super::payload_batch::PayloadBatch;
use crate::losses::reason_of_refusal;
use crate::protocol::{Counts, Shape};

pub(super) struct Fate {
    /// `received` is their sum.
    pub(super) counts: Counts,
    pub(super) stored_bytes: u64,
    pub(super) losses: Vec<Loss>,
    pub(super) outcome: Outcome,
    pub(super) failure: Option<Error>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Taken,
    /// The log took these bytes and records, and then was full.
    Full {
        bytes: usize,
        records: u64,
    },
    /// The client named a source that does not exist.
    NoSuchSource,
}

impl Loss {
    /// True if the client learns the reason, as it does for refused records.
    pub(super) fn concerns_client(&self) -> bool {
        !self.detail.is_empty() && self.reason != LossReason::LogFailed
    }
}

impl Fate {
    /// Pushes the payloads of a client that knows the first `known_fields` fields of the source. If the source or the client drops payloads that
    /// find the log full, none is left over.
    pub(super) fn of_push(
        writer: &mut Writer,
        id: SourceId,
        known_fields: usize,
        payloads: &PayloadBatch<'_>,
        drops: bool,
    ) -> Fate {
        // Built-in sources are the daemon's own: to a client they do not exist.
        let source = writer.catalog().source(id);
        let Some(source) = source.filter(|source| !is_builtin(&source.name)) else {
            let mut fate = Fate::refused(id, payloads, LossReason::NoSuchSource, String::new());
            fate.outcome = Outcome::NoSuchSource;
            fate.losses.iter_mut().for_each(|loss| loss.source = None);
            return fate;
        };
        let drops = drops || source.on_overload == Overload::DropNew;
        if known_fields >= source.fields.len() {
            return Fate::of_present(writer, id, drops, payloads);
        }
        // Bytes of an older layout may pass for another record of the newer one.
        match payloads.widened(source, known_fields) {
            Ok(bytes) => {
                let widened = PayloadBatch {
                    shape: Shape::Framed,
                    bytes: &bytes,
                    records: payloads.records,
                };
                let mut fate = Fate::of_present(writer, id, drops, &widened);
                if let Outcome::Full { bytes, records } = &mut fate.outcome {
                    *bytes = payloads.bytes_of(*records);
                }
                fate
            }
            Err(error) => Fate::refused(id, payloads, LossReason::Malformed, error.to_string()),
        }
    }

    /// Pushes payloads of the source's present layout. If it `drops`, payloads that find the log full are lost.
    fn of_present(
        writer: &mut Writer,
        source: SourceId,
        drops: bool,
        payloads: &PayloadBatch<'_>,
    ) -> Fate {
        let PayloadBatch {
            shape,
            bytes,
            records,
        } = *payloads;
        let pushed = match writer.try_push_batch(source, &payloads.batch()) {
            Ok(pushed) => pushed,
            Err(error @ Error::SourceClosed { .. }) => {
                return Fate::refused(
                    source,
                    payloads,
                    LossReason::SourceClosed,
                    error.to_string(),
                );
            }
            Err(error) => {
                let detail = error.to_string();
                let counts = Counts {
                    dropped: payloads.records,
                    ..Counts::default()
                };
                return Fate {
                    failure: Some(error),
                    ..Fate::lost(source, payloads, counts, LossReason::LogFailed, detail)
                };
            }
        };
        let taken = pushed.stored + pushed.refused_count;
        let taken_bytes = shape.payload_bytes(pushed.taken_bytes, taken);
        let mut fate = Fate {
            counts: Counts {
                stored: pushed.stored,
                refused: pushed.refused_count,
                ..Counts::default()
            },
            stored_bytes: pushed.stored_bytes,
            losses: Vec::new(),
            outcome: Outcome::Taken,
            failure: None,
        };
        if let Some(last) = pushed.refused.last() {
            assert!(
                pushed.stored_bytes <= taken_bytes,
                "{} payload bytes were stored of {taken_bytes}",
                pushed.stored_bytes
            );
            fate.losses.push(Loss {
                source: Some(source),
                reason: reason_of_refusal(&last.reason),
                records: pushed.refused_count,
                bytes: Some(taken_bytes - pushed.stored_bytes),
                detail: last.reason.to_string(),
            });
        }
        if pushed.taken_bytes == bytes.len() {
            return fate;
        }
        if drops {
            fate.counts.dropped = records - taken;
            let bytes = shape.payload_bytes(bytes.len() - pushed.taken_bytes, records - taken);
            fate.losses.push(Loss {
                source: Some(source),
                reason: LossReason::Overload,
                records: records - taken,
                bytes: Some(bytes),
                detail: String::new(),
            });
        } else {
            fate.outcome = Outcome::Full {
                bytes: pushed.taken_bytes,
                records: taken,
            };
        }
        fate
    }

    /// The fate of payloads that are all refused.
    pub(super) fn refused(
        source: SourceId,
        payloads: &PayloadBatch<'_>,
        reason: LossReason,
        detail: String,
    ) -> Fate {
        let counts = Counts {
            refused: payloads.records,
            ..Counts::default()
        };
        Fate::lost(source, payloads, counts, reason, detail)
    }

    /// The fate of payloads that are all lost; `counts` says whether they were refused or dropped.
    fn lost(
        source: SourceId,
        payloads: &PayloadBatch<'_>,
        counts: Counts,
        reason: LossReason,
        detail: String,
    ) -> Fate {
        Fate {
            counts,
            stored_bytes: 0,
            losses: vec![Loss {
                source: Some(source),
                reason,
                records: payloads.records,
                bytes: Some(payloads.payload_bytes()),
                detail,
            }],
            outcome: Outcome::Taken,
            failure: None,
        }
    }
}
