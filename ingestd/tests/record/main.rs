//! `ingestd record` as a user runs it: what it records, what it prints, and how it ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod kernel;
mod packets;
mod program;
mod scene;
mod usage;
