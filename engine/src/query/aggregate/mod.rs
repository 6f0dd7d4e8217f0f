//! Operators that add up: the indexed aggregate with its quantiles, and the histogram.

pub mod bucket;
pub mod collect;
pub mod gather;
pub mod histogram;
pub mod indexed_aggregate;
pub mod looks;
pub mod place;
pub mod quantile;
pub mod refine;
pub mod tally;
