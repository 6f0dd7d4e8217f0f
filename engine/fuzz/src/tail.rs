//! The file `tail`: pieces of the record log that no unit holds yet.

use loom_engine::format::{TAIL_PIECE_HEADER_BYTES, checksum_for};

pub const NAME: &str = "tail";
/// The log number of the checksums of pieces.
const TAIL_LOG: u8 = 6;

/// Makes the checksums of all pieces right, as far as their lengths lead to the next.
pub fn repair(uuid: &[u8; 16], file: &mut [u8]) {
    let mut rest = file;
    while rest.len() >= TAIL_PIECE_HEADER_BYTES {
        let [bytes, address] = [8, 16].map(|at| u64_at(rest, at));
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let end = TAIL_PIECE_HEADER_BYTES.saturating_add(length);
        let Some((piece, later)) = rest.split_at_mut_checked(end) else {
            return;
        };
        let (head, body) = piece.split_at_mut(8);
        let sum = checksum_for(uuid, TAIL_LOG, address, body);
        if let Some(place) = head.last_chunk_mut() {
            *place = sum.to_le_bytes();
        }
        rest = later;
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
