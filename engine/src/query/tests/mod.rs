//! The operators against a naive oracle, over directories that a writer made from generated records.
//!
//! A world is opened with small sizes (`TUNING`), so that batches, groups and narrowing passes all happen.

mod aggregates;
mod chunks;
mod column_filters;
mod columns;
mod contrasts;
mod damage;
mod forgotten;
mod kept_units;
mod live;
mod lookups;
mod losses;
mod operators;
mod question;
mod raw_scans;
mod replaced;
pub mod rows;
mod scans;
mod sources;
mod together;
mod words;
mod zones;
