//! What a request becomes: payloads of one source, in pieces that the writer thread takes at a time, and what is refused.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use loom_engine::schema::LossReason;
use loom_engine::{Error, proven};
use loom_otlp::{REPAIRED, Taken};

use crate::daemon::fate::Outcome;
use crate::daemon::payload_batch::PayloadBatch;
use crate::daemon::peer::Peer;
use crate::daemon::recorder::Recorder;
use crate::daemon::{UNFOLDED, definitions};
use crate::protocol::Shape;

/// What is pushed at once, about: other connections wait meanwhile.
const PIECE_BYTES: usize = 256 << 10;

/// How many reasons of one request are kept apart.
const WORDS_MAX: usize = 16;

pub(super) struct Batch {
    pub(super) pieces: Vec<Piece>,
    pub(super) refused: Refused,
    last: Vec<u8>,
    last_records: u64,
    bytes_left: usize,
}

/// Some framed payloads.
#[derive(Clone)]
pub(super) struct Piece {
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
    pub(super) records: u64,
}

impl Batch {
    pub(super) fn new(bytes_max: usize) -> Batch {
        Batch {
            pieces: Vec::new(),
            refused: Refused::default(),
            last: Vec::new(),
            last_records: 0,
            bytes_left: bytes_max,
        }
    }

    /// Adds a payload, or says why not.
    pub(super) fn add(&mut self, payload: &[u8]) {
        let length = u16::try_from(payload.len()).expect("an encoder makes no longer payload");
        let Some(left) = self.bytes_left.checked_sub(2 + payload.len()) else {
            let why =
                format!("the records take more than {UNFOLDED} times body_max; send fewer at once");
            return self.refused.add(LossReason::TooLong, &why, 1);
        };
        self.bytes_left = left;
        self.last.extend_from_slice(&length.to_le_bytes());
        self.last.extend_from_slice(payload);
        self.last_records += 1;
        if self.last.len() >= PIECE_BYTES {
            self.cut();
        }
    }

    /// Makes the last piece of what is left.
    pub(super) fn cut(&mut self) {
        let bytes = std::mem::take(&mut self.last);
        let records = std::mem::take(&mut self.last_records);
        if records > 0 {
            self.pieces.push(Piece {
                range: 0..bytes.len(),
                bytes: Arc::new(bytes),
                records,
            });
        }
    }

    pub(super) fn refuse(&mut self, error: &Error) {
        match error {
            Error::TooLong { limit, .. } => {
                let why = format!("it makes a record of more than {limit} bytes");
                self.refused.add(LossReason::TooLong, &why, 1);
            }
            error => (self.refused).add(LossReason::Malformed, &error.to_string(), 1),
        }
    }
}

/// How many records of a request are refused, by why.
#[derive(Clone, Default)]
pub(super) struct Refused {
    by_why: BTreeMap<(LossReason, String), u64>,
    /// Texts were not UTF-8, and are stored with U+FFFD in place of what is wrong.
    pub(super) is_repaired: bool,
}

impl Refused {
    /// What could not be read.
    pub(super) fn unread(records: u64, why: &str) -> Refused {
        let mut refused = Refused::default();
        refused.add(LossReason::Malformed, why, records);
        refused
    }

    pub(super) fn add(&mut self, reason: LossReason, why: &str, records: u64) {
        let mut why = why.to_owned();
        if self.by_why.len() >= WORDS_MAX && !self.by_why.contains_key(&(reason, why.clone())) {
            why = "several".to_owned();
        }
        *self.by_why.entry((reason, why)).or_default() += records;
    }

    /// The words that stand already for this reason, with an example behind them.
    pub(super) fn words_for(&self, why: &str) -> Option<String> {
        let mut known = self.by_why.keys().map(|(_, words)| words);
        known.find(|words| words.starts_with(why)).cloned()
    }

    /// As the sender learns of it.
    pub(super) fn taken(&self) -> Taken {
        let mut taken = Taken {
            refused: self.by_why.values().sum(),
            why: said(self.by_why.iter()),
        };
        if self.is_repaired {
            taken.refuse(0, REPAIRED);
        }
        taken
    }

    /// How many for one reason, and what is said of them: the ledger keeps the words of one loss of a reason.
    pub(super) fn of(&self, reason: LossReason) -> Option<(u64, String)> {
        let such = self
            .by_why
            .iter()
            .filter(|((found, _), _)| *found == reason);
        let records = such.clone().map(|(_, records)| records).sum();
        (records > 0).then(|| (records, said(such)))
    }
}

fn said<'a>(refused: impl Iterator<Item = (&'a (LossReason, String), &'a u64)>) -> String {
    let each = refused.map(|((_, why), records)| format!("{records}: {why}"));
    each.collect::<Vec<_>>().join("; ")
}

impl Recorder {
    /// Pushes a piece; what is left of it. An error says why the source takes none.
    pub(super) fn push_piece(
        &mut self,
        peer: &Peer,
        source: &str,
        piece: Piece,
    ) -> Result<Piece, String> {
        let found = definitions::find(self.writer.catalog(), source);
        let id = found.map_err(|error| error.to_string())?.id;
        let payloads = PayloadBatch {
            shape: Shape::Framed,
            bytes: proven::at(&piece.bytes, piece.range.clone()),
            records: piece.records,
        };
        Ok(match self.push(peer, id, &payloads) {
            Outcome::Full { bytes, records } => Piece {
                range: piece.range.start + bytes..piece.range.end,
                records: piece.records - records,
                bytes: piece.bytes,
            },
            Outcome::Taken | Outcome::NoSuchSource => Piece {
                records: 0,
                ..piece
            },
        })
    }
}
