//! The bytes of bins: the BLOB that `loom_bins` returns, which users keep in tables (sql/docs/records.md).
//!
//! | offset | type | content |
//! |---|---|---|
//! | 0 | 2 bytes | `LB` |
//! | 2 | u8 | version, 1 |
//! | 3 | u8 | 1 if every value is a whole number, else 0 |
//! | 4 | f64 | the least value |
//! | 12 | f64 | the greatest value |
//! | 20 | 2 numbers | for each bin that holds values, ascending: the bins left out since the one before it, and its count |
//! | end - 4 | u32 | CRC32C of all bytes before it |
//!
//! A number has 7 bits a byte, the lowest first, and the top bit in every byte except the last. All else is little-endian.
//!
//! Invariant: the same values give the same bytes, and bytes that another writer could not have made so are refused.

use loom_engine::format::crc32c;
use loom_engine::types::Key;

use super::bins::{Bins, Extent, bin_of, is_whole, last_bin};
use crate::error::{Problem, Result};

const MAGIC: &[u8] = b"LB";
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 20;

/// The bytes of bins; `None` if they count nothing.
pub fn write(bins: &Bins) -> Option<Vec<u8>> {
    if bins.count() == 0 {
        return None;
    }
    let extent = bins.extent();
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(MAGIC);
    bytes.extend([VERSION, extent.is_whole.into()]);
    bytes.extend(extent.least.to_f64().to_le_bytes());
    bytes.extend(extent.greatest.to_f64().to_le_bytes());
    let mut next = 0;
    for (bin, count) in bins.counts() {
        write_number(&mut bytes, (bin - next).into());
        write_number(&mut bytes, count);
        next = bin + 1;
    }
    bytes.extend(crc32c(&[&bytes]).to_le_bytes());
    Some(bytes)
}

fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Counts the values of a BLOB in `bins` too.
///
/// # Errors
/// The bytes are not those of bins, or are damaged. The bins are then of no use.
pub fn merge(bytes: &[u8], bins: &mut Bins) -> Result<()> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(refused(
            bytes,
            "it does not begin with 'LB'; pass what loom_bins or loom_bins_merge returned",
        ));
    };
    match rest.first() {
        Some(&VERSION) => {}
        Some(&version) => {
            return Err(refused(
                bytes,
                &format!(
                    "its version is {version}, and this extension reads version {VERSION}; update the extension"
                ),
            ));
        }
        None => return Err(damaged(bytes, "it is cut")),
    }
    let (content, sum) = bytes
        .split_last_chunk::<4>()
        .filter(|(content, _)| content.len() > HEADER_BYTES)
        .ok_or_else(|| damaged(bytes, "it is cut"))?;
    if crc32c(&[content]) != u32::from_le_bytes(*sum) {
        return Err(damaged(bytes, "its checksum is wrong"));
    }
    let (extent, counts) = parse(content).ok_or_else(|| {
        damaged(
            bytes,
            "its checksum is right, but its content is not that of bins",
        )
    })?;
    bins.merge_counts(extent, counts.into_iter())
}

/// The content, if it is what [`write`] makes of some values.
fn parse(content: &[u8]) -> Option<(Extent, Vec<(u16, u64)>)> {
    let [is_all_whole, rest @ ..] = content.get(3..)? else {
        return None;
    };
    let (least, rest) = rest.split_first_chunk::<8>()?;
    let (greatest, mut rest) = rest.split_first_chunk::<8>()?;
    let extent = Extent {
        least: read_value(*least)?,
        greatest: read_value(*greatest)?,
        is_whole: match is_all_whole {
            0 => false,
            1 => true,
            _ => return None,
        },
    };
    let mut counts = Vec::with_capacity(rest.len() / 2);
    let mut next = 0u64;
    while !rest.is_empty() {
        let bin = next.checked_add(read_number(&mut rest)?)?;
        let count = read_number(&mut rest).filter(|count| *count > 0)?;
        let bin = u16::try_from(bin).ok().filter(|bin| *bin <= last_bin())?;
        counts.push((bin, count));
        next = u64::from(bin) + 1;
    }
    let ends = [counts.first()?.0, counts.last()?.0];
    let ends_fit = ends == [extent.least, extent.greatest].map(bin_of);
    let are_whole = [extent.least, extent.greatest]
        .iter()
        .all(|end| is_whole(end.to_f64()));
    let fits = ends_fit && extent.least <= extent.greatest && (are_whole || !extent.is_whole);
    fits.then_some((extent, counts))
}

/// The key of a float in the one form that a key gives back.
fn read_value(bytes: [u8; 8]) -> Option<Key> {
    let key = Key::from_f64(f64::from_le_bytes(bytes));
    (key.to_f64().to_le_bytes() == bytes).then_some(key)
}

/// Takes a number in its shortest form.
fn read_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            return None;
        }
        number |= part << shift;
        if byte < 0x80 {
            return (byte > 0 || shift == 0).then_some(number);
        }
    }
    None
}

fn damaged(bytes: &[u8], why: &str) -> Problem {
    refused(
        bytes,
        &format!("{why}; count the values again with loom_bins, or leave this row out"),
    )
}

fn refused(bytes: &[u8], why: &str) -> Problem {
    let length = bytes.len();
    Problem::input(format!(
        "cannot read a BLOB of {length} bytes as bins: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bins_of(values: &[f64]) -> Bins {
        let mut bins = Bins::default();
        for &value in values {
            bins.add(value, 1).unwrap();
        }
        bins
    }

    fn read(bytes: &[u8]) -> Result<Bins> {
        let mut bins = Bins::default();
        merge(bytes, &mut bins)?;
        Ok(bins)
    }

    /// With a right checksum.
    fn sealed(content: &[u8]) -> Vec<u8> {
        let mut bytes = content.to_vec();
        bytes.extend(crc32c(&[content]).to_le_bytes());
        bytes
    }

    #[test]
    fn the_bytes_are_those_of_the_page() {
        assert_eq!(write(&Bins::default()), None);
        let bytes = write(&bins_of(&[1.0, -0.0, 1.0])).unwrap();
        let mut content = b"LB\x01\x01".to_vec();
        content.extend(0f64.to_le_bytes());
        content.extend(1f64.to_le_bytes());
        // Bin 4097 of zero, and bin 4097 + 2049 of one.
        content.extend([0x81, 0x20, 1, 0x80, 0x10, 2]);
        assert_eq!(bytes, sealed(&content));
    }

    #[test]
    fn a_blob_that_is_not_of_bins_is_refused_with_the_remedy() {
        let good = write(&bins_of(&[1.0, 300.5, -7.0, f64::NAN])).unwrap();
        let mut later = good.clone();
        later[2] = 2;
        for (bytes, words) in [
            (&b""[..], "pass what loom_bins"),
            (b"hello", "pass what loom_bins"),
            (b"LB", "cut"),
            (&good[..22], "cut"),
            (&good[..good.len() - 1], "checksum"),
            (&later, "update the extension"),
            (&sealed(&good[..20]), "cut"),
            (&sealed(&good[..good.len() - 5]), "content"),
        ] {
            let message = read(bytes).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
            assert!(
                message.contains(&format!("{} bytes", bytes.len())),
                "{message}"
            );
        }
        for at in 0..good.len() {
            let mut flipped = good.clone();
            flipped[at] ^= 0x10;
            assert!(read(&flipped).is_err(), "byte {at}");
        }
    }

    #[test]
    fn bytes_of_another_form_are_refused_although_their_checksum_is_right() {
        let one = 1f64.to_le_bytes();
        let with = |head: &[u8], least: [u8; 8], greatest: [u8; 8], runs: &[u8]| {
            sealed(&[head, &least, &greatest, runs].concat())
        };
        let bin = [0x82, 0x30];
        let good = [&bin[..], &[5]].concat();
        assert_eq!(
            read(&with(b"LB\x01\x01", one, one, &good)).unwrap().count(),
            5
        );
        let half = 1.5f64.to_le_bytes();
        let nan = (-f64::NAN).to_le_bytes();
        for (head, least, greatest, runs) in [
            (b"LB\x01\x02", one, one, &good[..]),
            // The least value is in another bin, above the greatest, not whole, or has another form.
            (b"LB\x01\x01", 2f64.to_le_bytes(), one, &good),
            (b"LB\x01\x01", 1.01f64.to_le_bytes(), one, &good),
            (b"LB\x01\x01", one, 1.01f64.to_le_bytes(), &good),
            (b"LB\x01\x00", one, half, &good),
            (b"LB\x01\x00", nan, nan, &[0x82, 0x40, 1]),
            (b"LB\x01\x00", (-0f64).to_le_bytes(), one, &good),
            // No count, a count of 0, longer numbers than needed, a number that is too great, a bin that does not exist.
            (b"LB\x01\x01", one, one, &bin),
            (b"LB\x01\x01", one, one, &[0x82, 0x30, 0]),
            (b"LB\x01\x01", one, one, &[0x82, 0x30, 0x85, 0]),
            (b"LB\x01\x01", one, one, &[0x82, 0xb0, 0, 5]),
            (
                b"LB\x01\x01",
                one,
                one,
                &[
                    0x82, 0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
                ],
            ),
            (
                b"LB\x01\x01",
                one,
                one,
                &[0x82, 0x30, 1, 0xff, 0xff, 0x7f, 1],
            ),
        ] {
            let read = read(&with(head, least, greatest, runs));
            assert!(read.is_err(), "{head:?} {least:?} {greatest:?} {runs:?}");
        }
    }

    proptest! {
        #[test]
        fn bytes_give_the_bins_back_and_these_the_bytes(
            values in prop::collection::vec(prop_oneof![any::<f64>(), any::<i16>().prop_map(f64::from)], 1..400),
        ) {
            let bins = bins_of(&values);
            let bytes = write(&bins).unwrap();
            let back = read(&bytes).unwrap();
            prop_assert_eq!(back.extent(), bins.extent());
            prop_assert!(back.counts().eq(bins.counts()));
            prop_assert_eq!(write(&back).unwrap(), bytes);
        }

        #[test]
        fn any_bytes_are_bins_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..60), seal: bool) {
            if seal {
                let head = [b"LB\x01\x00".as_slice(), &bytes].concat();
                bytes = sealed(&head);
            }
            if let Ok(bins) = read(&bytes) {
                prop_assert_eq!(write(&bins).unwrap(), bytes);
            }
        }
    }
}
