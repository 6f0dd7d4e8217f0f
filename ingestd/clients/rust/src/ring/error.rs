//! The errors of a ring: of its creation and mapping, of a push, and of marks that a producer cannot have left.

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

/// The ring has marks that no producer of this library leaves. The consumer reads no further.
#[derive(Copy, Clone, Debug, Error, PartialEq, Eq)]
pub enum Broken {
    #[error(
        "the producer's counter is {tail}, which is not a multiple of 8 from {head} to {head} + {capacity}"
    )]
    Tail { tail: u64, head: u64, capacity: u64 },
    #[error("the word {word:#x} at {at} does not begin a record")]
    Head { at: u64, word: u64 },
    #[error("the record at {at} takes {bytes} bytes, but only {published} are published")]
    Length { at: u64, bytes: u64, published: u64 },
    #[error("the producer counts {claimed} dropped records after {before}, in {elapsed_ns} ns")]
    Dropped {
        claimed: u64,
        before: u64,
        elapsed_ns: u64,
    },
}
