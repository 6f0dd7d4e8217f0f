//! The one checksum of the format: CRC-32C over UUID, log, address and bytes. Stale, moved and foreign bytes therefore never verify.

use crc_fast::{CrcAlgorithm, Digest};

use crate::types::{Address, LogKind};

/// The log number under which `durable` slots are checksummed.
pub const SLOT_LOG: u8 = 3;
/// The log number under which tables of pending losses are checksummed.
pub const LOSSES_LOG: u8 = 4;

/// Computes the checksum of `bytes` at `address` of `log` in the directory `uuid`.
pub fn checksum(uuid: &[u8; 16], log: LogKind, address: Address, bytes: &[u8]) -> u32 {
    checksum_for(uuid, log as u8, address.0, bytes)
}

/// Does the same for a place outside the three logs.
pub fn checksum_for(uuid: &[u8; 16], log: u8, address: u64, bytes: &[u8]) -> u32 {
    crc32c(&[uuid, &[log], &address.to_le_bytes(), bytes])
}

/// Computes the CRC-32C of the parts in sequence.
pub fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..9000_u32).map(|nth| ((nth * nth) >> 5) as u8).collect();
        for length in (0..300).chain([511, 512, 1023, 4096, 8192, 9000]) {
            let whole = crc32c::crc32c(&bytes[..length]);
            for cut in [0, 1, 25, length / 2, length] {
                let (front, back) = bytes[..length].split_at(cut.min(length));
                assert_eq!(
                    crc32c(&[front, back]),
                    whole,
                    "{length} bytes, cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn the_same_bytes_elsewhere_have_another_checksum() {
        let (a, b) = ([1u8; 16], [2u8; 16]);
        let here = checksum(&a, LogKind::Records, Address(64), b"bytes");
        assert_eq!(here, checksum(&a, LogKind::Records, Address(64), b"bytes"));
        assert_ne!(here, checksum(&b, LogKind::Records, Address(64), b"bytes"));
        assert_ne!(here, checksum(&a, LogKind::Chunks, Address(64), b"bytes"));
        assert_ne!(here, checksum(&a, LogKind::Records, Address(128), b"bytes"));
        assert_ne!(here, checksum(&a, LogKind::Records, Address(64), b"bytez"));
    }
}
