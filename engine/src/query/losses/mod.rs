//! Missing records, from the ledger, from the logs, and from the table of losses that have no record yet.

pub mod listing;
pub mod missing;
pub mod pending;
