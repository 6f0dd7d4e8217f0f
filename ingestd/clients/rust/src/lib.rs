//! The client library for producers in Rust: it declares sources, pushes payloads, and reports how many were stored.
//!
//! ```no_run
//! # fn main() -> Result<(), loom_client::ClientError> {
//! use loom_client::Client;
//!
//! let client = Client::connect("/var/lib/loom".as_ref())?;
//! let source = client.define_one("[[source]]\nname = 'ticks'\n[[source.field]]\nname = 'n'\ntype = 'u64'")?;
//! client.push(source, &7u64.to_le_bytes())?;
//! let synced = client.sync()?;
//! assert_eq!(synced.counts.stored, 1);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] pushes through the daemon's socket. A [`RingClient`] pushes through shared memory, without a system call for each record. A `Client`
//! ends with its daemon; a [`LastingClient`] and a `RingClient` go on with the next daemon.
//!
//! The daemon uses the same modules: [`protocol`] encodes and decodes the bytes on the socket, [`ring`] is the shared memory, and [`descriptors`]
//! sends its file. The crate links no Arrow and no async runtime.

pub mod client;
pub mod descriptors;
pub mod protocol;
pub mod ring;
pub mod socket;

pub use client::{
    Client, ClientError, ClientOptions, LastingClient, LastingOptions, PATIENCE, RingClient,
    RingOptions,
};
pub use loom_engine::SourceId;

/// The examples of the page for producers.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients.md")]
struct Page;
