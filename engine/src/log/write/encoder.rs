//! The logs know bytes, not what they mean. Whoever opens a writer hands the flusher an encoder that does.

use std::fmt;

use crate::types::Address;

/// Makes units of the record log.
pub trait Encoder: fmt::Debug + Send {
    /// Appends the unit of whole chunks, the first of which stands at `first`: in columns, if these are smaller and give back every byte, else raw.
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>);
}
