//! The commands of `ingestd` that need no daemon, as a user runs them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod check;
mod export;
mod full_disk;
mod help;
mod load;
mod memory;
mod packed;
mod place;
mod text;
mod values;
