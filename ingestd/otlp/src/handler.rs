//! The handler, which the daemon gives, and the outcomes of requests that it takes or refuses.

use std::net::IpAddr;

use crate::signal::Signal;
use crate::wire::Malformed;

/// The outcome of a request that was taken: all that it held is stored, except what is refused.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Taken {
    /// Records, spans or data points.
    pub refused: u64,
    /// Why, in sentences for people; empty if there is nothing to say.
    pub why: String,
}

impl Taken {
    /// Adds records that are refused, or words alone.
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

/// Why nothing of a request was taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// The sender keeps it and comes again.
    #[error("{0}")]
    Busy(String),
    /// A limit for new senders or series refuses all of it, which is counted.
    #[error("{0}")]
    Limited(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Stores what requests hold.
pub trait Handler: Send + 'static {
    /// Takes a request in protobuf that came from an address: all of it except what it reports as refused, or nothing.
    fn take(&mut self, signal: Signal, from: IpAddr, body: &[u8]) -> Result<Taken, NotTaken>;

    /// Counts requests, or records of one, that could not be read.
    fn turned_away(&mut self, signal: Signal, count: u64, why: &str);

    /// Counts connections that were closed at once, because `served` others are open.
    fn closed(&mut self, count: u64, served: usize);
}
