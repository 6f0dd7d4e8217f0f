//! Operators that add up: the indexed aggregate with its quantiles, the histogram, the records by bucket, and the greatest values.

// What is asked.
pub mod bucket;
pub mod index_question;
pub mod quantile;
pub mod time_slices;

// How nodes and chunks answer: counts, sums and extremes by bucket and bin.
pub mod bucket_values;
pub mod question_set;
pub mod shared_descent;
pub mod totals_descent;

// What bins leave open: the values of single ranks.
pub mod rank_descent;
pub mod rank_range;
pub mod rank_search;
pub mod rank_target;

// The operators.
pub mod histogram;
pub mod indexed_aggregate;
pub mod record_counts;
pub mod top;

// What they would cost.
pub mod estimate;
