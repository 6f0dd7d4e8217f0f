//! Tests the records, the output and the end of `ingestd record`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod budget;
mod groups;
mod kernel;
mod packets;
mod profile;
mod program;
mod scene;
mod usage;
