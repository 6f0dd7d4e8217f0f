//! The interface to an encoder. The logs know bytes, not their meaning; the caller who opens a writer passes an encoder that knows it.

use std::fmt;

use crate::types::Address;

/// Makes units of the record log.
pub trait Encoder: fmt::Debug + Send {
    /// Appends the unit of whole chunks, which begin at `first`: in columns, if these are smaller and restore every byte, else raw.
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>);

    /// An encoder that makes the same units, for another thread.
    fn another(&self) -> Box<dyn Encoder>;
}
