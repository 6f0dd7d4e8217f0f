//! The way in: one writer appends records, summarises each chunk when it is full, and indexes what it summarised.
//!
//! `Writer` owns everything a directory's single writer holds. Nothing here is shared with readers but the bytes that
//! `Logs::publish` makes visible, and nothing here reads what `query` reads with.

mod batch;
mod boundary;
mod clock;
mod columns;
mod definitions;
mod indexer;
mod intake;
mod known_sources;
mod native;
mod options;
mod recovery;
mod retention;
mod rollup;
mod summarise;
mod writer;

pub use batch::{Batch, Pushed, REASONS_MAX, Refused};
pub use clock::Clock;
pub(crate) use indexer::covers;
pub use native::NativeKey;
pub(crate) use native::Natives;
pub use options::{WhenFull, WriterOptions};
pub use retention::{Eviction, Limits, Shortfall};
pub(crate) use rollup::Merger;
pub use summarise::{LatestChunks, Summariser};
pub use writer::{Writer, WriterStats};
