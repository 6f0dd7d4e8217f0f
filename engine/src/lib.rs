//! The engine of Loom: complete high-frequency telemetry in append-only hybrid logs, summarised as it is written and
//! queried live from other processes.
//!
//! `FORMAT.md` specifies every byte. The modules stand in the order in which data flows.

pub mod check;
pub mod error;
pub mod format;
pub mod ingest;
pub mod log;
pub mod proven;
pub mod query;
pub mod schema;
#[cfg(test)]
mod tests;
pub mod types;

pub use error::{Error, IoContext, LockHolder, PayloadError, Result};
pub use types::{
    Address, ChunkNo, IndexId, Key, LogKind, PerLog, SourceId, Sum, TimeRange, Timestamp,
    ValueKind, ValueRange,
};
