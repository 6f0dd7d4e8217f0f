//! The engine of Loom: complete high-frequency telemetry in append-only hybrid logs, summarised as it is written and queried live from other processes.
//!
//! `FORMAT.md` specifies every byte. The modules stand in the order in which data flows.

// Shared types and errors.
pub mod error;
mod memory;
pub mod proven;
pub mod types;

// The meaning of bytes, and their encoding.
pub mod format;
pub mod schema;

// The storage of bytes: the three logs, and the nodes in two of them.
pub mod log;
mod nodes;

// Writing.
pub mod ingest;

// Reading.
pub mod query;

// The comparison of all of it with FORMAT.md.
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
