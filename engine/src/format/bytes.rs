//! Checked little-endian reads, and the error of every decoder in this folder.
//!
//! Decoders call these on foreign bytes; the invariant is that no read leaves its slice.

/// What a decoder found wrong with foreign bytes. The caller adds file and address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("{what} is cut short: {have} bytes of {need}")]
    Short {
        what: &'static str,
        have: usize,
        need: usize,
    },
    #[error("checksum of {what} does not match: stored {stored:08x}, computed {computed:08x}")]
    Checksum {
        what: &'static str,
        stored: u32,
        computed: u32,
    },
    #[error("{what} is not what the format allows: {value}")]
    Invalid { what: &'static str, value: u64 },
}

pub(super) fn invalid<T>(what: &'static str, value: u64) -> Result<T, FormatError> {
    Err(FormatError::Invalid { what, value })
}

/// `N` bytes at `at`, or zeroes where they are not there. For accessors whose bounds `decode` has proven.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    match bytes.get(at..).and_then(|rest| rest.first_chunk::<N>()) {
        Some(found) => *found,
        None => [0; N],
    }
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

pub(super) fn i64_at(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(array(bytes, at))
}

/// Reads one LEB128 number at `*at` and moves past it.
fn leb128_at(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn put_leb128(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What a half byte says of a number that is not below it: how far it exceeds this follows as LEB128.
const NIBBLE_FULL: u64 = 15;

/// Two numbers, mostly small, in a byte: the first in its lower half, the second in its upper one.
pub(super) fn put_pair(out: &mut Vec<u8>, first: u64, second: u64) {
    let [low, high] = [first, second].map(|number| number.min(NIBBLE_FULL));
    out.push((low | high << 4) as u8);
    for number in [first, second] {
        if let Some(excess) = number.checked_sub(NIBBLE_FULL) {
            put_leb128(out, excess);
        }
    }
}

/// Reads two numbers at `*at` and moves past them.
#[inline]
pub(super) fn pair_at(bytes: &[u8], at: &mut usize) -> Option<(u64, u64)> {
    let byte = u64::from(*bytes.get(*at)?);
    *at += 1;
    let mut number = |nibble| {
        if nibble < NIBBLE_FULL {
            return Some(nibble);
        }
        leb128_at(bytes, at)?.checked_add(NIBBLE_FULL)
    };
    Some((number(byte & 15)?, number(byte >> 4)?))
}

/// Pads with zeroes to the next multiple of 8.
pub(super) fn pad8(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(8), 0);
}
