//! The daemon around the engine, its inputs, which turn files and pipes into payloads, and its outputs.
//!
//! The command line (`main.rs`, `cli/`) is the only user of some of it; producers use the client library.

mod child;
mod counted;
pub mod daemon;
pub mod demo;
pub mod exposition;
pub mod input;
mod metrics;
pub mod output;
mod process_time;
mod quoted;
pub mod record;
mod rfc3339;
pub mod rules;
pub mod serve;
mod threads;
mod wall_clock;
mod web_client;

pub use counted::counted;
pub use loom_client::{client, descriptors, protocol, socket};
pub use loom_config as config;
pub use loom_sink as sink;
use loom_sink::losses;
use process_time::process_time;
pub use quoted::quoted;
pub use rfc3339::rfc3339;
pub use wall_clock::wall_clock;

#[cfg(test)]
mod testing;
