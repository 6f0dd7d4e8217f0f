//! The daemon as its clients and its owner see it: over the socket, by signals, and by what then stands in the
//! directory.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod access;
mod actions;
mod commands;
mod connections;
mod cuts;
mod generated;
mod hostile;
mod keeping;
mod lasting;
mod ledger;
mod loads;
mod outlive;
mod overload;
mod pins;
mod process;
mod python;
mod ring_restarts;
mod rings;
mod rules;
mod rules_at_rest;
mod socket;
mod support;
