//! The way in: one writer appends records, summarises each chunk when it is full, and indexes what it summarised.
//!
//! `Writer` owns everything a directory's single writer holds. Nothing here is shared with readers but the bytes that
//! `Logs::publish` makes visible, and nothing here reads what `query` reads with.

// A directory is recovered, and a writer begins.
mod known_sources;
mod options;
mod recovery;
mod start;

// Payloads come in and get a time.
mod batch;
mod clock;
mod definitions;
mod intake;
mod native;
mod steps;

// They go into the open chunk; a full one is summarised and indexed.
mod columns;
mod indexer;
mod rollup;
mod summariser;
mod unit_encoder;
mod writer;

// The oldest go.
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
