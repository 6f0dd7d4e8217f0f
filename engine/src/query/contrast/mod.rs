//! The operator that compares two groups of records field by field: the selected ones, and others.
//!
//! One descent counts the values of all fields in both groups. A field with more different values than memory is kept for names candidates
//! instead, and a second descent counts these exactly.

// Counts in bounded memory.
pub mod frequent;
pub mod group_counts;
mod sieve;

// The counts of one field.
pub mod given_values;
pub mod grouped_rows;
pub mod large_numbers;
mod number_tally;
pub mod tally;
mod text;
mod text_rows;
pub mod text_tally;

// The operator.
pub mod contrast_descent;
pub mod operator;
