//! Data points over OTLP, into the groups of their senders.

mod points;
mod senders;
mod shares;

pub(crate) use senders::Senders;
pub(crate) use shares::Shares;
