//! What stands between the daemon and those who talk to it: the socket's protocol, the client library, configurations, the framing
//! of captures, and what Prometheus' targets answer.
//!
//! All of it reads bytes that anybody may have written. The crate links no Arrow, so that the fuzzer and small producers can use it;
//! `ingestd` re-exports the modules that its callers name.

pub mod capture;
pub mod client;
pub mod config;
pub mod descriptors;
pub mod exposition;
pub mod protocol;
pub mod socket;
