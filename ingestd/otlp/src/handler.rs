//! The handler, which the daemon provides, and the results of requests.

use std::net::IpAddr;

use crate::signal::Signal;
use crate::wire::Malformed;

/// The result of a request that was accepted: everything is stored, apart from the refused items.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Taken {
    /// Refused records, spans or data points.
    pub refused: u64,
    /// The reasons, in sentences for people; empty if there are none.
    pub why: String,
}

impl Taken {
    /// Adds refused records, or a remark alone.
    pub fn refuse(&mut self, records: u64, why: &str) {
        self.refused += records;
        if !self.why.is_empty() {
            self.why.push_str("; ");
        }
        if records > 0 {
            self.why.push_str(&format!("{records}: "));
        }
        self.why.push_str(why);
    }
}

/// Why nothing of a request was stored.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// The sender keeps the request and tries again.
    #[error("{0}")]
    Busy(String),
    /// A limit for new senders or series refuses the whole request, which is counted.
    #[error("{0}")]
    Limited(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Stores the contents of requests.
pub trait Handler: Send + 'static {
    /// Stores a request in protobuf from an address: everything except the items that it reports as refused, or nothing.
    fn take(&mut self, signal: Signal, from: IpAddr, body: &[u8]) -> Result<Taken, NotTaken>;

    /// Counts requests, or records of one, that could not be read.
    fn turned_away(&mut self, signal: Signal, count: u64, why: &str);

    /// Counts connections that were closed at once, because `served` others are open.
    fn closed(&mut self, count: u64, served: usize);
}
