//! The write path: one writer appends records, summarises each chunk when it is full, and indexes the summary.
//!
//! `Writer` owns everything that a directory's single writer holds. Readers share nothing with it except the bytes that `Logs::publish`
//! makes visible, and nothing here uses the read path of `query`.

// Recover a directory and start a writer.
mod known_sources;
mod options;
mod recovery;
mod start;

// Take payloads in and give them a time.
mod batch;
mod clock;
mod definitions;
mod intake;
mod native;
mod steps;

// Put them into the open chunk; summarise and index a full one.
mod columns;
mod indexer;
mod rollup;
mod summariser;
mod unit_encoder;
mod writer;

// Remove the oldest segments.
mod boundary;
mod retention;

pub use batch::{Batch, Pushed, REASONS_MAX, Refused};
pub use clock::{Clock, ClockLine};
pub(crate) use indexer::covers;
pub use native::NativeKey;
pub(crate) use native::Natives;
pub use options::{WhenFull, WriterOptions};
pub use retention::{Eviction, Limits, Shortfall};
pub(crate) use rollup::Merger;
pub use steps::ClockStep;
pub use summariser::{LatestChunks, Summariser};
pub use writer::{Writer, WriterStats};
