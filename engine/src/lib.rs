//! The engine of Loom: complete high-frequency telemetry in append-only hybrid logs, summarised as it is written and
//! queried live from other processes.
//!
//! `FORMAT.md` specifies every byte. The modules stand in the order in which data flows.

// What every module speaks of.
pub mod error;
mod memory;
pub mod proven;
pub mod types;

// What bytes mean, and how they stand.
pub mod format;
pub mod schema;

// Where bytes stand: the three logs, and the nodes in two of them.
pub mod log;
mod nodes;

// The way in.
pub mod ingest;

// The way out.
pub mod query;

// All of it held against FORMAT.md.
pub mod check;

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
#[cfg(test)]
mod tests;

pub use error::{Error, IoContext, LockHolder, PayloadError, Result};
pub use types::{
    Address, ChunkNo, IndexId, Key, LogKind, PerLog, SourceId, Sum, TimeRange, Timestamp,
    ValueKind, ValueRange,
};
