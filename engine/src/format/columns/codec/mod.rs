//! A column of numbers as a block of bytes, with one file for each encoding (FORMAT.md, *Units*).
//!
//! Numbers are 64 bits, compared as signed; differences wrap. A block names its encoding but not the number of its values, which its row group knows.
//! [`ColumnEncoder`] writes the shortest block, [`open_block`] opens any; both know every encoding, and no encoding knows another.

mod block;
mod constant;
mod cursor;
mod dictionary;
mod differences;
mod encoder;
mod encoding;
mod look;
mod masked;
mod members;
mod packed;
mod runs;
mod scaled;
#[cfg(test)]
mod tests;

pub use block::open_block;
pub use cursor::{Cursor, TAIL};
pub use encoder::ColumnEncoder;
pub use encoding::{Block, Run};
