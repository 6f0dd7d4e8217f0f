//! What can be wrong with a ring when it is created or mapped, and why a record is not pushed.

use std::io;

use thiserror::Error;

/// A ring could not be created or mapped.
#[derive(Debug, Error)]
pub enum RingError {
    #[error(
        "a ring of {0} bytes is not possible; use a power of two from 64 KiB to 64 MiB, or 0 for the default"
    )]
    Capacity(u64),
    #[error("cannot create a ring of {bytes} bytes: {source}")]
    Create { bytes: u64, source: io::Error },
    #[error("cannot map a ring: {0}")]
    Map(io::Error),
    #[error("the descriptor is not a ring of this version: {0}")]
    NotARing(&'static str),
}

/// A record was not pushed.
#[derive(Copy, Clone, Debug, Error, PartialEq, Eq)]
pub enum PushError {
    #[error("the ring is full")]
    Full,
    #[error("the daemon has closed the ring; connect again")]
    Closed,
    #[error(
        "this process is a fork of the one that connected to the daemon; connect again in the child"
    )]
    Forked,
    #[error("a record of {bytes} bytes is longer than the limit of a ring's record, {limit}")]
    TooLong { bytes: usize, limit: usize },
}
