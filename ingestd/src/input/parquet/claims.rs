//! Checks that compressed pages are not longer than their headers claim, for compressions where the library checks that only after decompression.
//!
//! `weight` relies on the headers. Pages are decompressed here, and discarded, only if wrong claims could exceed a limit.

use std::fs::File;
use std::io::{Read, copy, sink};
use std::os::unix::fs::FileExt;

use anyhow::{Context, ensure};
use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::Compression;
use parquet::file::metadata::ColumnChunkMetaData;

use super::pages::{Page, for_each_page};

/// Old writers store this form of LZ4 under the name of another; the library tries it last.
const LZ4_FRAME: [u8; 4] = 0x184D_2204_u32.to_le_bytes();

/// Checks the pages of columns that are read together, if the pages of one moment could exceed the limit.
pub(super) fn check_claims(
    file: &File,
    chunks: &[&ColumnChunkMetaData],
    bytes_max: u64,
) -> anyhow::Result<()> {
    let mut worst = 0u64;
    let trusting: Vec<_> = chunks
        .iter()
        .filter(|chunk| most_ratio(chunk) > 1)
        .collect();
    for chunk in &trusting {
        let longest = longest_page(file, chunk).with_context(|| named(chunk))?;
        worst = worst.saturating_add(longest.saturating_mul(most_ratio(chunk)));
    }
    if worst <= bytes_max {
        return Ok(());
    }
    for chunk in trusting {
        each_page(file, chunk, |page| check_page(file, chunk, page))
            .with_context(|| named(chunk))?;
    }
    Ok(())
}

fn named(chunk: &ColumnChunkMetaData) -> String {
    format!("column '{}'", chunk.column_path().string())
}

/// The greatest ratio of decompressed to compressed bytes before the library checks the header.
fn most_ratio(chunk: &ColumnChunkMetaData) -> u64 {
    match chunk.compression() {
        Compression::GZIP(_) => 1030,
        Compression::LZ4 => 255,
        _ => 1,
    }
}

fn longest_page(file: &File, chunk: &ColumnChunkMetaData) -> anyhow::Result<u64> {
    let mut longest = 0;
    each_page(file, chunk, |page| {
        longest = longest.max(page.packed_bytes);
        Ok(())
    })?;
    Ok(longest)
}

fn each_page(
    file: &File,
    chunk: &ColumnChunkMetaData,
    see: impl FnMut(Page) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let is_flat = chunk.column_descr().max_rep_level() == 0;
    let values = u64::try_from(chunk.num_values()).unwrap_or(0);
    for_each_page(file, chunk, is_flat.then_some(values), see)
}

fn check_page(file: &File, chunk: &ColumnChunkMetaData, page: Page) -> anyhow::Result<()> {
    let packed = page.packed_bytes.saturating_sub(page.levels_bytes);
    let packed_at = page.at.saturating_add(page.levels_bytes);
    let file_bytes = file.metadata()?.len();
    ensure!(
        packed_at
            .checked_add(packed)
            .is_some_and(|end| end <= file_bytes),
        "a page of {packed} bytes at byte {packed_at} reaches past the end of the file"
    );
    let mut bytes = vec![0; usize::try_from(packed)?];
    file.read_exact_at(&mut bytes, packed_at)?;
    let unpacked: &mut dyn Read = match chunk.compression() {
        Compression::GZIP(_) => &mut MultiGzDecoder::new(bytes.as_slice()),
        Compression::LZ4 if bytes.starts_with(&LZ4_FRAME) => {
            &mut FrameDecoder::new(bytes.as_slice())
        }
        _ => return Ok(()),
    };
    // The library reports a page that cannot be decompressed.
    let unpacked = copy(&mut unpacked.take(page.bytes + 1), &mut sink()).unwrap_or(0);
    ensure!(
        unpacked <= page.bytes,
        "a page of {packed} bytes unpacks to more than the {} that its header claims",
        page.bytes
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::{WriterProperties, WriterVersion};

    use super::*;

    /// The encoding of an unpacked length in a page header: a zigzag varint, of four bytes here.
    fn varint(bytes: usize) -> [u8; 4] {
        let digit = |shift: usize| ((2 * bytes) >> shift) as u8 & 0x7f;
        [
            digit(0) | 0x80,
            digit(7) | 0x80,
            digit(14) | 0x80,
            digit(21),
        ]
    }

    /// Checks a file with one page, whose header claims this many bytes less than the page has.
    fn checked(version: WriterVersion, less: usize) -> anyhow::Result<()> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::GZIP(Default::default()))
            .set_dictionary_enabled(false)
            .set_writer_version(version)
            .build();
        let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20)]));
        let batch = RecordBatch::try_from_iter([("c", long)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let meta = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .unwrap();
        let chunk = meta.row_group(0).column(0);
        let mut unpacked = 0;
        each_page(&file, chunk, |page| {
            unpacked = page.bytes as usize;
            Ok(())
        })
        .unwrap();
        let at = bytes
            .windows(4)
            .position(|window| window == varint(unpacked))
            .unwrap();
        file.write_all_at(&varint(unpacked - less), at as u64)
            .unwrap();
        check_claims(&file, &[chunk], 1 << 30).unwrap();
        check_claims(&file, &[chunk], 1 << 16)
    }

    // case Network and input: bytes that unpack to far more than they weigh
    #[test]
    fn a_page_that_unpacks_to_more_than_it_claims_is_refused() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            checked(version, 0).unwrap();
            let error = format!("{:#}", checked(version, 1000).unwrap_err());
            let expected = "column 'c': a page of ";
            assert!(error.starts_with(expected), "{error}");
            assert!(error.ends_with("that its header claims"), "{error}");
        }
    }
}
