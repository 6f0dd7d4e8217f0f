//! Operators that aggregate: the indexed aggregate with its quantiles, the histogram, the record counts by bucket, and the greatest values.

// The questions.
pub mod bucket;
pub mod index_question;
pub mod quantile;
pub mod time_slices;

// The answers of nodes and chunks: counts, sums and extremes by bucket and bin.
pub mod bucket_values;
pub mod question_set;
pub mod shared_descent;
pub mod totals_descent;

// The search for the values of single ranks, which bins do not decide.
pub mod rank_descent;
pub mod rank_range;
pub mod rank_search;
pub mod rank_target;

// The operators.
pub mod histogram;
pub mod indexed_aggregate;
pub mod record_counts;
pub mod top;

// Their cost.
pub mod estimate;
