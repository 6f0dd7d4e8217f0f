//! The records of a request: payloads of one source, each behind its length, and the refusals.

use loom_engine::Error;
use loom_engine::schema::LossReason;

use crate::daemon::inlet::UNFOLDED;
use crate::daemon::refused::Refused;

pub(super) struct Batch {
    pub(super) framed: Vec<u8>,
    pub(super) refused: Refused,
    bytes_max: usize,
}

impl Batch {
    pub(super) fn new(bytes_max: usize) -> Batch {
        Batch {
            framed: Vec::new(),
            refused: Refused::default(),
            bytes_max,
        }
    }

    pub(super) fn add(&mut self, payload: &[u8]) {
        let length = u16::try_from(payload.len()).expect("an encoder makes no longer payload");
        if self.framed.len() + 2 + payload.len() > self.bytes_max {
            let why =
                format!("the records take more than {UNFOLDED} times body_max; send fewer at once");
            return self.refused.add(LossReason::TooLong, &why, 1);
        }
        self.framed.extend_from_slice(&length.to_le_bytes());
        self.framed.extend_from_slice(payload);
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
