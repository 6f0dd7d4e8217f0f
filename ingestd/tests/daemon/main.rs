//! The daemon as its clients and its owner see it: over the socket, by signals, and by what then stands in the
//! directory.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod access;
mod commands;
mod compaction;
mod connections;
mod generated;
mod hostile;
mod keeping;
mod ledger;
mod loads;
mod overload;
mod process;
mod python;
mod rings;
mod rules;
#[path = "../small_disk/mod.rs"]
mod small_disk;
mod socket;
mod support;
