//! What a consumer can find in a ring that no producer of this library leaves there.

use thiserror::Error;

/// What the producer left in the ring is not possible. The consumer reads no further.
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
