//! What becomes of a push: how many of its records the log stored, which were refused or dropped and why, and how far it came.
//!
//! The recorder enters a fate in its books once; nothing here counts.

use loom_engine::ingest::Writer;
use loom_engine::schema::{LossReason, Overload, is_builtin};
use loom_engine::{Error, SourceId};

use super::payload_batch::PayloadBatch;
use crate::losses::reason_of_refusal;
use crate::protocol::{Counts, Shape};

pub(super) struct Fate {
    /// `received` is their sum.
    pub(super) counts: Counts,
    pub(super) stored_bytes: u64,
    pub(super) losses: Vec<Loss>,
    pub(super) outcome: Outcome,
    /// Why the log failed, if it did.
    pub(super) failure: Option<Error>,
}

/// How far a push came.
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

/// Records of a push that are lost for one reason.
pub(super) struct Loss {
    pub(super) reason: LossReason,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) detail: String,
}

impl Loss {
    /// Whether the client learns why: it learns why records were refused.
    pub(super) fn concerns_client(&self) -> bool {
        !self.detail.is_empty() && self.reason != LossReason::LogFailed
    }
}

impl Fate {
    /// Pushes the payloads of a client that knows the first `known_fields` fields of the source. If the source or the client drops what finds the log
    /// full, nothing is left.
    pub(super) fn of_push(
        writer: &mut Writer,
        id: SourceId,
        known_fields: usize,
        payloads: &PayloadBatch<'_>,
        drops: bool,
    ) -> Fate {
        // Clients have no built-in sources: these are the daemon's own.
        let source = writer.catalog().source(id);
        let Some(source) = source.filter(|source| !is_builtin(&source.name)) else {
            return Fate {
                outcome: Outcome::NoSuchSource,
                ..Fate::refused(payloads, LossReason::NoSuchSource, String::new())
            };
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
            Err(error) => Fate::refused(payloads, LossReason::Malformed, error.to_string()),
        }
    }

    /// Pushes payloads of the source's present layout. What finds the log full is lost if it `drops`.
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
                return Fate::refused(payloads, LossReason::SourceClosed, error.to_string());
            }
            Err(error) => {
                let detail = error.to_string();
                let counts = Counts {
                    dropped: payloads.records,
                    ..Counts::default()
                };
                return Fate {
                    failure: Some(error),
                    ..Fate::lost(payloads, counts, LossReason::LogFailed, detail)
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
                reason: reason_of_refusal(&last.reason),
                records: pushed.refused_count,
                bytes: taken_bytes - pushed.stored_bytes,
                detail: last.reason.to_string(),
            });
        }
        if pushed.taken_bytes == bytes.len() {
            return fate;
        }
        if drops {
            fate.counts.dropped = records - taken;
            fate.losses.push(Loss {
                reason: LossReason::Overload,
                records: fate.counts.dropped,
                bytes: shape.payload_bytes(bytes.len() - pushed.taken_bytes, fate.counts.dropped),
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
    pub(super) fn refused(payloads: &PayloadBatch<'_>, reason: LossReason, detail: String) -> Fate {
        let counts = Counts {
            refused: payloads.records,
            ..Counts::default()
        };
        Fate::lost(payloads, counts, reason, detail)
    }

    /// The fate of payloads that are all lost; `counts` says whether they were refused or dropped.
    fn lost(
        payloads: &PayloadBatch<'_>,
        counts: Counts,
        reason: LossReason,
        detail: String,
    ) -> Fate {
        Fate {
            counts,
            stored_bytes: 0,
            losses: vec![Loss {
                reason,
                records: payloads.records,
                bytes: payloads.payload_bytes(),
                detail,
            }],
            outcome: Outcome::Taken,
            failure: None,
        }
    }
}
