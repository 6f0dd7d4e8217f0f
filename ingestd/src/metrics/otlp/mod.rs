//! Stores data points that come over OTLP in the groups of their senders.

mod points;
mod senders;
mod shares;

pub(crate) use senders::Senders;
pub(crate) use shares::Shares;
