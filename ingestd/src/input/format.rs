//! Chooses the format of an input by the user's option, its name or its first bytes.

use std::path::Path;

use anyhow::bail;
use clap::ValueEnum;
use loom_engine::proven::at;

use super::Reader;
use super::arrow_ipc::{ArrowIpc, FILE_MAGIC};
use super::blocks::{BYTE_ORDER_MARK, Blocks};
use super::compression::inner_name;
use super::csv::Csv;
use super::duckdb::{copy_pipe, copy_statement, packed};
use super::json::Json;
use super::parquet::Parquet;
use super::pcap::Pcap;
use super::plan::LoadOptions;

/// The shortest valid input of a binary format.
const MARK_BYTES: usize = 8;
/// The number of bytes that `is_text` checks.
const TEXT_BYTES: usize = 512;

/// The first bytes of Feather version 1, which is not Arrow IPC.
const FEATHER_1: &[u8] = b"FEA1\0\0\0\0";
/// The mark of a tar archive, and its position in the first header.
const TAR: &[u8] = b"ustar";
const TAR_AT: usize = 257;

/// The formats that can be read.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Format {
    /// Comma-separated values, or those of another --delimiter, into declared fields
    Csv,
    /// JSON lines: an object each, into declared fields
    #[value(alias = "jsonl", alias = "ndjson")]
    Json,
    Parquet,
    /// Arrow IPC streams and files
    #[value(alias = "ipc", alias = "feather")]
    Arrow,
    /// pcap and pcapng
    #[value(alias = "pcapng")]
    Pcap,
}

impl Format {
    /// Recognises a format by the extension of a file name.
    pub(super) fn of_name(path: &Path) -> Option<Format> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "csv" | "tsv" => Format::Csv,
            "json" | "jsonl" | "ndjson" => Format::Json,
            "parquet" | "pq" => Format::Parquet,
            "arrow" | "arrows" | "ipc" | "feather" => Format::Arrow,
            "pcap" | "pcapng" | "cap" => Format::Pcap,
            _ => return None,
        })
    }

    /// Recognises a format by its first bytes, if it has a mark.
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [b'P', b'A', b'R', b'1', ..] => Some(Format::Parquet),
            [0xff, 0xff, 0xff, 0xff, ..] => Some(Format::Arrow),
            _ if bytes.starts_with(FILE_MAGIC) => Some(Format::Arrow),
            [0xd4 | 0x4d, 0xc3 | 0x3c, 0xb2, 0xa1, ..]
            | [0xa1, 0xb2, 0xc3 | 0x3c, 0xd4 | 0x4d, ..]
            | [0x0a, 0x0d, 0x0d, 0x0a, ..] => Some(Format::Pcap),
            _ => {
                let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
                matches!(text.trim_ascii_start(), [b'{' | b'[', ..]).then_some(Format::Json)
            }
        }
    }

    /// The name in messages.
    fn name(self) -> &'static str {
        match self {
            Format::Csv => "CSV",
            Format::Json => "JSON",
            Format::Parquet => "Parquet",
            Format::Arrow => "Arrow IPC",
            Format::Pcap => "pcap",
        }
    }

    /// The DuckDB function that reads this format, if the format does not define the types of its columns.
    fn untyped(self) -> Option<&'static str> {
        match self {
            Format::Csv => Some("read_csv"),
            Format::Json => Some("read_json"),
            Format::Parquet | Format::Arrow | Format::Pcap => None,
        }
    }

    /// Fails if the first bytes are those of another format, or if the fields are unknown.
    pub(super) fn check(
        self,
        blocks: &mut Blocks,
        path: &Path,
        options: &LoadOptions,
    ) -> anyhow::Result<()> {
        self.check_bytes(blocks)?;
        match self.untyped() {
            Some(_) if options.declared.is_some() && options.add_fields => bail!(
                "cannot add fields from {} (--add-fields): {} does not say their types; declare the new fields with --fields instead",
                blocks.name(),
                self.name()
            ),
            Some(function) if options.declared.is_none() => {
                let source = &options.source;
                let unpack = packed(path).map(|suffix| {
                    format!("unpack it, because DuckDB does not read .{suffix}, and ")
                });
                bail!(
                    "cannot load {} into source '{source}': {} does not say the types of its columns; declare them with --fields, or {}let DuckDB 2 load \
                     it: {}; from DuckDB 1: {}",
                    blocks.name(),
                    self.name(),
                    unpack.unwrap_or_default(),
                    copy_statement(options, path, function),
                    copy_pipe(options, path, function)
                )
            }
            _ => Ok(()),
        }
    }

    fn check_bytes(self, blocks: &mut Blocks) -> anyhow::Result<()> {
        // A text may be shorter, and its next line may come late from a pipe.
        if !matches!(self, Format::Csv | Format::Json) {
            blocks.fill_to(MARK_BYTES)?;
        }
        let (bytes, input) = (blocks.data(), blocks.name());
        if let Some(what) = unread(bytes) {
            bail!("cannot read {input} as {}: {what}", self.name());
        }
        let name = self.name();
        match (self, Format::of_bytes(bytes)) {
            (_, Some(seen)) if seen == self => Ok(()),
            // CSV may begin like JSON.
            (Format::Csv | Format::Json, None | Some(Format::Json)) => Ok(()),
            (_, Some(seen)) => {
                let option = seen.to_possible_value().expect("no format is skipped");
                let (seen, option) = (seen.name(), option.get_name());
                bail!("cannot read {input} as {name}: it is {seen}; use --format {option}")
            }
            (_, None) if is_text(at(bytes, ..bytes.len().min(TEXT_BYTES))) => {
                bail!(
                    "cannot read {input} as {name}: it looks like text; use --format csv, or json"
                )
            }
            (Format::Parquet, None) if !bytes.starts_with(b"PAR") => {
                bail!(
                    "cannot read {input} as {name}: it does not begin as {name} does; is it another format, or damaged?"
                )
            }
            (_, None) => Ok(()),
        }
    }

    /// Opens the input of a path in this format.
    pub(super) fn read(
        self,
        blocks: Blocks,
        path: &Path,
        options: &LoadOptions,
    ) -> anyhow::Result<Box<dyn Reader>> {
        Ok(match self {
            Format::Csv => Box::new(Csv::open(blocks, inner_name(path), options)?),
            Format::Json => Box::new(Json::open(blocks, path, options)?),
            Format::Parquet => Box::new(Parquet::open(blocks)?),
            Format::Arrow => Box::new(ArrowIpc::open(blocks)?),
            Format::Pcap => Box::new(Pcap::open(blocks, options)?),
        })
    }
}

/// Recognises formats that are not supported, and says what to do.
pub(super) fn unread(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => {
            Some("it is UTF-16; convert it with 'iconv -f UTF-16 -t UTF-8 FILE | ingestd load … -'")
        }
        [a, 0, b, 0, ..] if is_text(&[*a, *b]) => Some(
            "it is UTF-16 without a byte order mark; convert it with 'iconv -f UTF-16LE -t UTF-8 FILE | ingestd load … -'",
        ),
        [0, a, 0, b, ..] if is_text(&[*a, *b]) => Some(
            "it is UTF-16 without a byte order mark; convert it with 'iconv -f UTF-16BE -t UTF-8 FILE | ingestd load … -'",
        ),
        [0x04, 0x22, 0x4D, 0x18, ..] | [0x02, 0x21, 0x4C, 0x18, ..] => {
            Some("it is compressed with lz4; unpack it with 'lz4 -dc FILE | ingestd load … -'")
        }
        [0x5D, 0, 0, ..] => {
            Some("it is compressed with lzma; unpack it with 'lzma -dc FILE | ingestd load … -'")
        }
        _ if bytes.starts_with(FEATHER_1) => Some(
            "it is Feather of version 1, not Arrow IPC; write it as version 2, for instance with pyarrow.feather.write_feather",
        ),
        _ if bytes
            .get(TAR_AT..)
            .is_some_and(|rest| rest.starts_with(TAR)) =>
        {
            Some("it is a tar archive; unpack it with 'tar -xOf FILE | ingestd load … -'")
        }
        [b'P', b'K', 3, 4, ..] => Some(
            "it is a zip archive or a spreadsheet; unpack it with 'unzip -p FILE | ingestd load … -', or read it with DuckDB",
        ),
        _ => None,
    }
}

/// Whether the bytes may be text: UTF-8 without control characters other than white space.
fn is_text(bytes: &[u8]) -> bool {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        // The last character may be incomplete.
        Err(error) if error.error_len().is_none() => {
            str::from_utf8(at(bytes, ..error.valid_up_to())).expect("it is valid up to there")
        }
        Err(_) => return false,
    };
    !text
        .chars()
        .any(|c| c.is_control() && !c.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_seen_by_name_or_first_bytes() {
        assert_eq!(Format::of_name(Path::new("a/b.CSV")), Some(Format::Csv));
        assert_eq!(Format::of_name(Path::new("b.pcapng")), Some(Format::Pcap));
        assert_eq!(Format::of_name(Path::new("b.dat")), None);
        assert_eq!(Format::of_name(Path::new("-")), None);
        assert_eq!(Format::of_bytes(b"PAR1...."), Some(Format::Parquet));
        assert_eq!(
            Format::of_bytes(&0xa1b2_c3d4_u32.to_le_bytes()),
            Some(Format::Pcap)
        );
        assert_eq!(
            Format::of_bytes(&0xa1b2_3c4d_u32.to_be_bytes()),
            Some(Format::Pcap)
        );
        for json in [&b"{\"a\""[..], b" [\n {\"", b"\xEF\xBB\xBF{\"a\":"] {
            assert_eq!(Format::of_bytes(json), Some(Format::Json));
        }
        assert_eq!(Format::of_bytes(b"a,b\n"), None);
        assert_eq!(Format::of_bytes(b""), None);
    }
}
