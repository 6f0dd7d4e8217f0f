//! The way out: from a question to the records that answer it.
//!
//! A [`Directory`] gives [`Snapshot`]s. A query turns its [`Predicate`] into masks over the nodes of the roll-up forest (`forest::mask`),
//! descends from the forest's roots to what the masks leave (`forest::walk`), and reads the chunks that no summary answers
//! (`scan::source_reader`), as batches. The operators of the paper's Figure 9 are [`raw_scan`], [`indexed_scan`] and [`aggregate`]; [`Scan`] is the one
//! that several threads share.
//!
//! Nothing here writes, locks or trusts: bytes are used after their checksum, pointers lead down by arithmetic, and what a summary
//! cannot answer is scanned with the same functions, so that an index never changes an answer.

// A directory, one instant of it or of several, and what a query reads of that.
pub(crate) mod caches;
mod cut;
mod directory;
mod shared_cache;
mod snapshot;
mod snapshot_logs;
mod status;
pub(crate) mod tuning;

// What is asked.
mod poll;
mod predicate;
mod value;

// How nodes and chunks answer.
mod forest;
mod scan;
mod scan_counters;

// What is answered.
mod aggregate;
mod end_arrivals;
mod losses;
mod source_totals;

#[cfg(test)]
mod tests;

pub use aggregate::bucket::Bucket;
pub use aggregate::estimate::{Estimate, estimate_aggregate};
pub use aggregate::histogram::{BinValues, Histogram, HistogramRow, HistogramSpec};
pub use aggregate::index_question::IndexAsked;
pub use aggregate::indexed_aggregate::{
    Aggregate, AggregateRow, AggregateSpec, aggregate, aggregate_together,
};
pub use aggregate::quantile::Quantile;
pub use aggregate::record_counts::{CountRow, CountSpec, RecordCounts};
pub use aggregate::top::{TopRow, TopSpec, top};
pub use caches::{CACHE_BYTES_MAX, cache_bytes, set_cache_bytes_max};
pub use cut::Cut;
pub use directory::{Directory, read_catalog};
pub use losses::listing::{Loss, pending_since};
pub use poll::Poll;
pub use predicate::{Predicate, Subject};
pub use scan::ask::Ask;
pub use scan::batch::{Batch, FieldColumn, PayloadRoom, RecordView};
pub use scan::chunk_list::{ChunkList, ChunkSource};
pub use scan::chunk_reader::ChunkReader;
pub use scan::given_records::GivenRecords;
pub use scan::indexed_scan::indexed_scan;
pub use scan::raw_scan::{RawScan, raw_scan};
pub use scan::shared_scan::{Scan, ScanSpec};
pub use scan::sources_scan::{Ahead, SourcesReader, SourcesScan, UnitChunks};
pub use scan_counters::ScanStats;
pub use snapshot::Snapshot;
pub use source_totals::SourceTotals;
pub use status::Status;
pub use value::IndexFn;
