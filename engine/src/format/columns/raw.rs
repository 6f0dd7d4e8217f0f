//! A unit with unchanged chunks: columns save too little, do not restore them exactly, or take longer than there is time.

use super::head::{Form, Tables, encode_head};
use crate::proven::at;
use crate::types::Address;

/// Appends the raw unit of whole chunks, which begin at `first`.
pub fn put_raw_unit(
    uuid: &[u8; 16],
    first: Address,
    chunk_bytes: u32,
    chunks: &[u8],
    out: &mut Vec<u8>,
) {
    let count = chunks.len() / chunk_bytes as usize;
    let last = chunks.iter().rposition(|byte| *byte != 0);
    let bytes = last.map_or(0, |last| (last + 1).next_multiple_of(8));
    let tables = Tables::default();
    let head = encode_head(uuid, first, Form::Raw, count, &tables, bytes);
    out.extend_from_slice(&head);
    out.extend_from_slice(at(chunks, ..bytes));
}
