//! What stands around the engine: inputs that turn files and pipes into payloads, and the daemon that takes them.
//!
//! The command line (`main.rs`, `cli/`) is the only user of some of it; producers use the client library.

pub mod client;
pub mod config;
mod counted;
pub mod daemon;
pub mod demo;
pub mod input;
mod losses;
pub mod output;
pub mod protocol;
pub mod sink;
pub mod socket;

pub use counted::counted;
