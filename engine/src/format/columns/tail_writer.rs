//! Writes the strings behind the pieces of a row group's rows.

use super::codec::ColumnEncoder;
use super::groups::TailForm;
use super::shared_strings::SharedStrings;
use crate::format::bytes::put_leb128;

const ZSTD_LEVEL: i32 = 1;
/// Shorter strings are stored as they are.
const COMPRESSED_LEAST: usize = 64;

pub struct TailWriter {
    compressor: zstd::bulk::Compressor<'static>,
    /// `None` if the directory's format has no form for them.
    shared: Option<SharedStrings>,
}

impl TailWriter {
    pub fn new(shares_strings: bool) -> TailWriter {
        TailWriter {
            compressor: zstd::bulk::Compressor::new(ZSTD_LEVEL).expect("level 1 exists"),
            shared: shares_strings.then(SharedStrings::default),
        }
    }

    pub fn shares_strings(&self) -> bool {
        self.shared.is_some()
    }

    /// Appends the strings of all rows, which lie side by side.
    pub fn put(
        &mut self,
        bytes: &[u8],
        lengths: &[u64],
        numbers: &mut ColumnEncoder,
        out: &mut Vec<u8>,
    ) {
        if let Some(shared) = &mut self.shared
            && bytes.len() >= COMPRESSED_LEAST
            && shared.find(bytes, lengths)
        {
            out.push(TailForm::Shared as u8);
            put_leb128(out, shared.lengths.len() as u64);
            numbers.put(&shared.lengths, None, &[], out);
            put_bytes(&mut self.compressor, &shared.bytes, out);
            numbers.put(&shared.codes, None, &[], out);
            return;
        }
        put_bytes(&mut self.compressor, bytes, out);
    }
}

fn put_bytes(compressor: &mut zstd::bulk::Compressor<'_>, bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() >= COMPRESSED_LEAST
        && let Ok(compressed) = compressor.compress(bytes)
        && compressed.len() < bytes.len()
    {
        out.push(TailForm::Zstd as u8);
        put_leb128(out, compressed.len() as u64);
        out.extend_from_slice(&compressed);
        return;
    }
    out.push(TailForm::Plain as u8);
    out.extend_from_slice(bytes);
}
