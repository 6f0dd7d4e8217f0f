//! Reads the page headers of a Parquet file, so that `weight` can choose the size of batches before any page is decompressed.
//!
//! A page header is a struct of Thrift's compact protocol. This file reads the fields that are needed, and skips others.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail};
use parquet::file::metadata::ColumnChunkMetaData;

/// The longest page header; it may include statistics.
const HEADER_BYTES_MAX: usize = 1 << 20;
const HEADER_BYTES_USUAL: usize = 256;
/// The limit of nested structs; page headers have three levels.
const DEPTH_MAX: u8 = 8;

const DATA_PAGE: i64 = 0;
const DICTIONARY_PAGE: i64 = 2;
const DATA_PAGE_V2: i64 = 3;
const DELTA_BYTE_ARRAY: i64 = 7;

/// The values of a page header.
#[derive(Copy, Clone, Default, Debug, PartialEq)]
pub(super) struct Page {
    kind: i64,
    /// The greater of decompressed and stored bytes.
    pub bytes: u64,
    pub packed_bytes: u64,
    /// The position of the page, after its header.
    pub at: u64,
    /// The bytes of levels, which are not compressed.
    pub levels_bytes: u64,
    /// The number of values with NULLs; 0 for a page without rows.
    pub values: u64,
    encoding: i64,
}

impl Page {
    pub(super) fn is_dictionary(&self) -> bool {
        self.kind == DICTIONARY_PAGE
    }

    /// Whether values are stored as differences from the previous ones, so that few bytes may mean many.
    pub(super) fn is_delta(&self) -> bool {
        self.encoding == DELTA_BYTE_ARRAY
    }
}

/// Calls `see` with each page of a column in a row group, in order. `rows` is the number of rows, if each has one value.
pub(super) fn for_each_page(
    file: &File,
    chunk: &ColumnChunkMetaData,
    rows: Option<u64>,
    mut see: impl FnMut(Page) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut at, length) = chunk.byte_range();
    let end = at.checked_add(length).context("its byte range overflows")?;
    let mut values = 0;
    while at < end {
        let Some((mut page, header_bytes)) = header_at(file, at)? else {
            if rows.is_some_and(|rows| values >= rows) {
                return Ok(());
            }
            bail!("there is no page header at byte {at}");
        };
        page.at = at.saturating_add(header_bytes as u64);
        see(page)?;
        values += page.values;
        at = page.at.saturating_add(page.packed_bytes);
    }
    Ok(())
}

fn header_at(file: &File, at: u64) -> anyhow::Result<Option<(Page, usize)>> {
    let mut bytes = vec![0; HEADER_BYTES_USUAL];
    loop {
        let mut held = 0;
        while let Some(rest) = bytes.get_mut(held..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, at + held as u64)? {
                0 => break,
                read => held += read,
            }
        }
        let whole = bytes.get(..held).unwrap_or_default();
        let mut reader = Compact { rest: whole };
        if let Some(page) = reader.page() {
            return Ok(Some((page, held - reader.rest.len())));
        }
        if held < bytes.len() || bytes.len() >= HEADER_BYTES_MAX {
            return Ok(None);
        }
        bytes.resize(bytes.len() * 8, 0);
    }
}

/// A reader of the compact protocol. Its functions return `None` if the bytes are invalid or end too early.
struct Compact<'a> {
    rest: &'a [u8],
}

impl Compact<'_> {
    fn page(&mut self) -> Option<Page> {
        let mut page = Page::default();
        let mut unpacked = 0;
        self.fields(DEPTH_MAX, &mut |reader, id, kind| {
            match (id, kind) {
                (1, 4..=6) => page.kind = reader.signed()?,
                (2, 4..=6) => unpacked = u64::try_from(reader.signed()?).ok()?,
                (3, 4..=6) => page.packed_bytes = u64::try_from(reader.signed()?).ok()?,
                (5 | 7 | 8, 12) => reader.data_page(id, &mut page)?,
                _ => reader.pass_over(kind, DEPTH_MAX)?,
            }
            Some(())
        })?;
        page.bytes = unpacked.max(page.packed_bytes);
        if !matches!(page.kind, DATA_PAGE | DATA_PAGE_V2) {
            page.values = 0;
        }
        Some(page)
    }

    /// Reads the header of a data page or a dictionary, which differ in the place of the encoding.
    fn data_page(&mut self, of: i64, page: &mut Page) -> Option<()> {
        let encoding_id = if of == 8 { 4 } else { 2 };
        self.fields(DEPTH_MAX, &mut |reader, id, kind| {
            match (id, kind) {
                (1, 4..=6) => page.values = u64::try_from(reader.signed()?).ok()?,
                (id, 4..=6) if id == encoding_id => page.encoding = reader.signed()?,
                // In the second version, levels precede the values.
                (5 | 6, 4..=6) if of == 8 => {
                    page.levels_bytes += u64::from(u32::try_from(reader.signed()?).ok()?);
                }
                _ => reader.pass_over(kind, DEPTH_MAX)?,
            }
            Some(())
        })
    }

    /// Reads a struct: `read` gets the number and type of each field, and reads its value.
    fn fields(
        &mut self,
        depth: u8,
        read: &mut dyn FnMut(&mut Self, i64, u8) -> Option<()>,
    ) -> Option<()> {
        depth.checked_sub(1)?;
        let mut id = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            id = match head >> 4 {
                0 => self.signed()?,
                step => id.checked_add(step.into())?,
            };
            read(self, id, head & 0xF)?;
        }
    }

    fn pass_over(&mut self, kind: u8, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // The type of a boolean is its value.
            1 | 2 => Some(()),
            3 => self.byte().map(drop),
            4..=6 => self.unsigned().map(drop),
            7 => self.bytes(8),
            8 => {
                let length = self.unsigned()?;
                self.bytes(usize::try_from(length).ok()?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.unsigned()?,
                    count => count.into(),
                };
                (0..count).try_for_each(|_| self.pass_over_element(head & 0xF, depth))
            }
            11 => {
                let count = self.unsigned()?;
                let kinds = if count == 0 { 0 } else { self.byte()? };
                (0..count).try_for_each(|_| {
                    self.pass_over_element(kinds >> 4, depth)?;
                    self.pass_over_element(kinds & 0xF, depth)
                })
            }
            12 => self.fields(depth, &mut |reader, _, kind| reader.pass_over(kind, depth)),
            _ => None,
        }
    }

    /// In a list, a boolean takes a byte.
    fn pass_over_element(&mut self, kind: u8, depth: u8) -> Option<()> {
        self.pass_over(if matches!(kind, 1 | 2) { 3 } else { kind }, depth)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn bytes(&mut self, count: usize) -> Option<()> {
        self.rest = self.rest.get(count..)?;
        Some(())
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_is_read_with_what_is_passed_over() {
        // Type 0, 1000 bytes of 300; a checksum; a data page of 70 values, encoding 7, with statistics; a list and a map besides.
        let mut bytes = vec![0x15, 0, 0x15, 0xD0, 0x0F, 0x15, 0xD8, 0x04, 0x15, 0x01];
        bytes.extend([
            0x1C, 0x15, 0x8C, 0x01, 0x15, 14, 0x2C, 0x18, 3, 1, 2, 3, 0x11, 0, 0,
        ]);
        bytes.extend([0x49, 0x21, 1, 2, 0x1B, 1, 0x18, 9, 1, 7, 0, 99]);
        let mut reader = Compact { rest: &bytes };
        let page = reader.page().unwrap();
        assert_eq!(reader.rest, [99]);
        assert_eq!((page.bytes, page.packed_bytes), (1000, 300));
        assert_eq!(
            (page.values, page.is_delta(), page.is_dictionary()),
            (70, true, false)
        );
        for end in 0..bytes.len() - 1 {
            assert_eq!(
                Compact {
                    rest: &bytes[..end]
                }
                .page(),
                None,
                "cut at {end}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_take_long(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Compact { rest: &bytes }.page();
        }
    }
}
