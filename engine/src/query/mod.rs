//! The way out: from a question to the records that answer it.
//!
//! A [`Directory`] gives [`Snapshot`]s. A query turns its [`Predicate`] into masks over the nodes of the roll-up forest (`mask.rs`),
//! descends from the forest's roots to what the masks leave (`walk.rs`), and reads the chunks that no summary answers
//! (`cursor.rs`). The operators of the paper's Figure 9 are [`raw_scan`], [`indexed_scan`] and [`aggregate`]; [`Scan`] is the one
//! that several threads share.
//!
//! Nothing here writes, locks or trusts: bytes are used after their checksum, pointers lead down by arithmetic, and what a summary
//! cannot answer is scanned with the same functions, so that an index never changes an answer.

mod aggregate;
mod bucket;
mod chunk_list;
mod chunk_reader;
mod collect;
mod count;
mod counters;
mod cursor;
mod directory;
mod forest;
mod gather;
mod histogram;
mod indexed_scan;
mod interrupt;
mod looks;
mod losses;
mod mask;
mod missing;
mod node_cache;
mod node_reader;
mod place;
mod predicate;
mod quantile;
mod raw_scan;
mod refine;
mod runs;
mod scan;
mod snapshot;
mod snapshot_logs;
mod status;
mod tally;
#[cfg(test)]
mod tests;
mod totals;
mod unrecorded;
mod value;
mod verified;
mod walk;
mod window;

pub use aggregate::{AggregateRow, AggregateSpec, aggregate, aggregate_together};
pub use bucket::Bucket;
pub use chunk_list::{ChunkList, ChunkSource};
pub use chunk_reader::{ChunkReader, Rows};
pub use counters::ScanStats;
pub use cursor::{RecordView, Row};
pub use directory::{Directory, read_catalog};
pub use histogram::{BinValues, Histogram, HistogramRow, HistogramSpec};
pub use indexed_scan::indexed_scan;
pub use interrupt::Poll;
pub use losses::{Loss, unrecorded_since};
pub use predicate::{Predicate, Subject};
pub use quantile::Quantile;
pub use raw_scan::{Backward, RawScan, raw_scan};
pub use scan::{Scan, ScanSpec};
pub use snapshot::Snapshot;
pub use status::Status;
pub use totals::SourceTotals;
pub use value::IndexFn;
