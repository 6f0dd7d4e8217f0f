//! The one checksum of the format: CRC-32C over UUID, log, address and bytes, so that stale, moved or foreign bytes never verify.

use crate::types::{Address, LogKind};

/// The log number under which `durable` slots are checksummed.
pub const SLOT_LOG: u8 = 3;
/// The log number under which tables of pending losses are checksummed.
pub const LOSSES_LOG: u8 = 4;

/// Checksum of `bytes` that stand at `address` of `log` in the directory `uuid`.
pub fn checksum(uuid: &[u8; 16], log: LogKind, address: Address, bytes: &[u8]) -> u32 {
    checksum_for(uuid, log as u8, address.0, bytes)
}

/// The same for a place that is in none of the three logs.
pub fn checksum_for(uuid: &[u8; 16], log: u8, address: u64, bytes: &[u8]) -> u32 {
    let sum = crc32c::crc32c(uuid);
    let sum = crc32c::crc32c_append(sum, &[log]);
    let sum = crc32c::crc32c_append(sum, &address.to_le_bytes());
    crc32c::crc32c_append(sum, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
