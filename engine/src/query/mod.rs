//! The read path: from a question to the records that answer it.
//!
//! A [`Directory`] gives [`Snapshot`]s. A query turns its [`Predicate`] into masks over the nodes of the roll-up forest (`forest::mask`),
//! descends from the forest's roots to the children that the masks keep (`forest::walk`), and reads the chunks that no summary answers
//! (`scan::source_reader`), as batches. The operators of the paper's Figure 9 are [`raw_scan`], [`indexed_scan`] and [`aggregate`]; several
//! threads can share a [`Scan`].
//!
//! Nothing here writes, locks or trusts: bytes are used only after their checksum was verified, pointers lead down by arithmetic, and
//! records that a summary cannot answer for are scanned with the same functions, so that an index never changes an answer.

// A directory, one instant of one or several directories, and what a query reads of it.
pub(crate) mod caches;
mod cut;
mod directory;
#[cfg(target_os = "linux")]
mod lookup_builder;
pub(crate) mod lookups;
mod shared_cache;
mod snapshot;
mod snapshot_logs;
mod status;
pub(crate) mod tuning;

// The question.
mod poll;
mod predicate;
mod value;
mod zone_test;

// The answers of nodes and chunks.
mod forest;
mod scan;
mod scan_counters;

// The results.
mod aggregate;
pub(crate) mod contrast;
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
pub use contrast::frequent::{CONTRAST_SHARE, CONTRAST_VALUES_MOST};
pub use contrast::group_counts::GroupCounts;
pub use contrast::operator::{
    Contrast, ContrastAsked, ContrastValue, ContrastValues, FieldContrast, contrast,
};
pub use cut::Cut;
pub use directory::{Directory, read_catalog};
pub use end_arrivals::FirstArrived;
#[cfg(target_os = "linux")]
pub use lookup_builder::Lookups;
pub use lookups::damaged_lookups;
pub use losses::listing::{Loss, pending_since};
pub use poll::Poll;
pub use predicate::{Predicate, Subject};
pub use scan::ask::Ask;
pub use scan::batch::{Batch, FieldColumn, PayloadRoom, RecordView, Strings};
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
