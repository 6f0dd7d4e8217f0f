//! What is missing, from the ledger, from the logs and from what has no record yet.

pub mod listing;
pub mod missing;
pub mod pending;
