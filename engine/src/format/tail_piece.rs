//! The pieces of the file `tail`: bytes of the record log that must become durable before their unit is complete.

use super::bytes::{u32_at, u64_at};
use super::checksum::checksum_for;
use crate::proven::at;
use crate::types::Address;

const TAIL_LOG: u8 = 6;
const MAGIC: u32 = 0x4C49_4154;
pub const TAIL_PIECE_HEADER_BYTES: usize = 24;

/// The header of a piece.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TailPiece {
    pub address: Address,
    /// A multiple of 8.
    pub bytes: usize,
    checksum: u32,
}

impl TailPiece {
    /// Appends a piece with the bytes at an address; their number is a multiple of 8.
    pub fn put(uuid: &[u8; 16], address: Address, bytes: &[u8], out: &mut Vec<u8>) {
        assert!(
            bytes.len().is_multiple_of(8) && !bytes.is_empty(),
            "a piece has whole words, not {} bytes",
            bytes.len()
        );
        let mut body = Vec::with_capacity(TAIL_PIECE_HEADER_BYTES - 8 + bytes.len());
        body.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        body.extend_from_slice(&address.0.to_le_bytes());
        body.extend_from_slice(bytes);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        let checksum = checksum_for(uuid, TAIL_LOG, address.0, &body);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&body);
    }

    /// Decodes the header of a piece of at most `bytes_most` bytes; `None` where there is none.
    pub fn decode(header: &[u8; TAIL_PIECE_HEADER_BYTES], bytes_most: u64) -> Option<TailPiece> {
        let bytes = u64_at(header, 8);
        let address = u64_at(header, 16);
        let may_be = u32_at(header, 0) == MAGIC
            && bytes > 0
            && bytes <= bytes_most
            && bytes.is_multiple_of(8)
            && address.is_multiple_of(8);
        may_be.then_some(TailPiece {
            address: Address(address),
            bytes: bytes as usize,
            checksum: u32_at(header, 4),
        })
    }

    /// Reports whether header and bytes of `piece` verify.
    pub fn verifies(&self, uuid: &[u8; 16], piece: &[u8]) -> bool {
        piece.len() == TAIL_PIECE_HEADER_BYTES + self.bytes
            && checksum_for(uuid, TAIL_LOG, self.address.0, at(piece, 8..)) == self.checksum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [3; 16];

    #[test]
    fn a_piece_is_found_again_and_a_flipped_bit_is_seen() {
        let mut piece = Vec::new();
        TailPiece::put(&UUID, Address(800), &[7; 64], &mut piece);
        let read = |piece: &[u8]| {
            let header = piece.first_chunk().unwrap();
            let found = TailPiece::decode(header, 1 << 20)?;
            found.verifies(&UUID, piece).then_some(found)
        };
        let found = read(&piece).unwrap();
        assert_eq!((found.address, found.bytes), (Address(800), 64));
        assert!(TailPiece::decode(piece.first_chunk().unwrap(), 63).is_none());
        for at in 0..piece.len() {
            let mut flipped = piece.clone();
            flipped[at] ^= 1 << (at % 8);
            assert_eq!(read(&flipped), None, "byte {at}");
        }
        assert!(!found.verifies(&[4; 16], &piece));
    }
}
