//! What stands between the daemon and those who talk to it: the socket's protocol, the client library, configurations, and the framing
//! of captures.
//!
//! All of it reads bytes that anybody may have written. The crate links no Arrow, so that the fuzzer and small producers can use it;
//! `ingestd` re-exports the modules that its callers name.

pub mod capture;
pub mod client;
pub mod config;
pub mod descriptors;
pub mod protocol;
pub mod socket;
