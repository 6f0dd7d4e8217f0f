//! Loads damaged inputs: bytes are changed or cut off. Each gives rows, refusals or an error with a message; none may panic.

use std::io::Read;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use super::testing::{declared, fields, options, try_load};
use super::{Format, LoadOptions};

fn damage_all(format: Format, file: &[u8]) {
    damage_each(format, file, 1);
}

/// Changes every `step`-th byte of a file, and cuts the file there.
fn damage_each(format: Format, file: &[u8], step: usize) {
    for at in (0..file.len()).step_by(step) {
        for flip in [1, 0x80, 0xFF] {
            let mut changed = file.to_vec();
            changed[at] ^= flip;
            look(format, &changed);
        }
        look(format, &file[..at]);
    }
}

/// The result must be valid rows, which `try_load` checks, or an error with a message.
fn look(format: Format, file: &[u8]) {
    match try_load(file, format, with_fields(format)) {
        Ok(loaded) => assert!(loaded.refused.iter().all(|(_, why)| !why.is_empty())),
        Err(error) => assert!(!format!("{error:#}").is_empty()),
    }
}

fn with_fields(format: Format) -> LoadOptions {
    match format {
        Format::Csv | Format::Json => {
            declared(&fields("n f64?, text utf8?, at timestamp_ns?, deep json?"))
        }
        _ => options(),
    }
}

// case Network and input: malformed rows and packets
#[test]
fn no_csv_panics() {
    damage_all(
        Format::Csv,
        b"n,text,at\n1,\"a \"\"b\"\"\",2024-01-02T03:04:05Z\n,x,\n2.5,\"two\nlines\",1969-12-31\n",
    );
}

// case Network and input: malformed rows and packets
#[test]
fn no_json_panics() {
    damage_all(
        Format::Json,
        b"{\"n\": 1, \"text\": \"a\\u00e4\", \"deep\": {\"x\": [1, null]}}\n{\"n\": -2.5e3, \"text\": null}\n{}\n",
    );
}

// case Network and input: malformed rows and packets
#[test]
fn no_compressed_input_panics() {
    let csv = b"n,text,at\n1,abc,2024-01-02\n2,def,2024-01-03\n";
    let mut gzip = flate2::read::GzEncoder::new(&csv[..], flate2::Compression::best());
    let mut bzip2 = bzip2::read::BzEncoder::new(&csv[..], bzip2::Compression::best());
    let mut xz = liblzma::read::XzEncoder::new(&csv[..], 6);
    let packers: [&mut dyn Read; 3] = [&mut gzip, &mut bzip2, &mut xz];
    let mut files = vec![zstd::encode_all(&csv[..], 19).unwrap()];
    for packer in packers {
        let mut file = Vec::new();
        packer.read_to_end(&mut file).unwrap();
        files.push(file);
    }
    for file in files {
        let loaded = try_load(&file, Format::Csv, with_fields(Format::Csv)).unwrap();
        assert_eq!(loaded.rows.len(), 2);
        damage_all(Format::Csv, &file);
    }
}

fn batch() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("one"), Some(""), None]));
    RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("text", texts, true)]).unwrap()
}

// case Network and input: malformed rows and packets
#[test]
fn no_parquet_panics() {
    let (mut file, batch) = (Vec::new(), batch());
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    damage_each(Format::Parquet, &file, 3);
}

// case Network and input: malformed rows and packets
#[test]
fn no_arrow_panics() {
    let (mut file, mut stream, batch) = (Vec::new(), Vec::new(), batch());
    let mut writer = FileWriter::try_new(&mut file, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    damage_each(Format::Arrow, &file, 3);
    damage_each(Format::Arrow, &stream, 3);
}

// case Network and input: bytes that unpack to far more than they weigh
#[test]
fn what_unpacks_to_far_more_than_it_weighs_is_refused_row_by_row() {
    const LONG: usize = 16 << 20;
    let long = "a".repeat(LONG);
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["short", &long, &long, "last"]));
    let batch = RecordBatch::try_from_iter([("text", texts)]).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_enabled(false)
        .build();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    assert!(file.len() < 2 * LONG / 10, "it weighs {} bytes", file.len());
    let loaded = try_load(&file, Format::Parquet, options()).unwrap();
    assert_eq!(loaded.lines(), ["short", "last"]);
    let refused: Vec<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
    assert_eq!(refused, [2, 3]);
    assert!(
        loaded
            .refused
            .iter()
            .all(|(_, why)| why.contains("the limit is"))
    );
}
