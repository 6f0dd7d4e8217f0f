//! Tests how much memory a load takes, whatever a file claims and decompresses to. It is measured from outside, as the peak of the process.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Int64Array, ListViewArray, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Field, Int32Type};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use loom_tests::command::{Ended, ingestd, says, word};
use loom_tests::machine;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

/// Runs a command, prints its output, and then its peak of memory in MiB.
const MEASURED: &str = "
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(done.stdout + done.stderr)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
";

/// A load takes about 170 MiB before it reads anything, most of it for staging.
const REFUSED_MIB_MAX: u64 = 250;
const UNPACKED_MIB_MAX: u64 = 1000;

/// The output of a load of a file, and its peak of memory in MiB.
fn measured(path: &Path) -> (String, u64) {
    let home = tempfile::tempdir().unwrap();
    let load = ingestd(["load", word(&home.path().join("loom")), "--source", "s"]);
    let mut python = Command::new("python3");
    python.args(["-c", MEASURED]).arg(load.get_program());
    let printed = Ended::of(python.args(load.get_args()).arg(path)).out;
    let (told, peak_mib) = printed.trim_end().rsplit_once('\n').unwrap();
    (told.to_owned(), peak_mib.parse().unwrap())
}

/// Rows of a text of 100 KB, which both formats store once.
fn one_text_for_all(path: &Path) {
    let long = "x".repeat(100_000);
    let column: DictionaryArray<Int32Type> = std::iter::repeat_n(long.as_str(), 20_000).collect();
    let column: ArrayRef = Arc::new(column);
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let file = fs::File::create(path).unwrap();
    if path.ends_with("one_text.arrow") {
        let mut writer = FileWriter::try_new(file, &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
    } else {
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

/// Pages of a text of 1 MB each, which compression makes short.
fn pages_of_nothing(path: &Path) {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(Default::default()))
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_write_batch_size(1)
        .build();
    let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1_000_000); 10]));
    let batch = RecordBatch::try_from_iter([("text", long)]).unwrap();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    for _ in 0..200 {
        writer.write(&batch).unwrap();
    }
    writer.close().unwrap();
}

/// Equal lists of 100,000 numbers.
fn one_list_for_all(path: &Path) {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1_000_000_000; 100_000]));
    let field = Arc::new(Field::new_list_field(DataType::Int64, true));
    let (offsets, sizes) = (vec![0_i32; 20_000], vec![100_000_i32; 20_000]);
    let lists = ListViewArray::new(field, offsets.into(), sizes.into(), numbers, None);
    let column: ArrayRef = Arc::new(lists);
    let batch = RecordBatch::try_from_iter([("list", column)]).unwrap();
    let mut writer =
        StreamWriter::try_new(fs::File::create(path).unwrap(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
}

// case Network and input: bytes that unpack to far more than they weigh
#[test]
fn a_load_stays_within_its_memory_whatever_a_file_unpacks_to() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    one_text_for_all(&path("one_text.parquet"));
    one_text_for_all(&path("one_text.arrow"));
    one_list_for_all(&path("one_list.arrows"));
    pages_of_nothing(&path("pages.parquet"));
    for (name, rows) in [
        ("one_text.parquet", 20_000),
        ("one_text.arrow", 20_000),
        ("one_list.arrows", 20_000),
        ("pages.parquet", 2000),
    ] {
        let path = path(name);
        assert!(fs::metadata(&path).unwrap().len() < 2 << 20, "{name}");
        let (told, peak_mib) = measured(&path);
        let counts = format!("received={rows} stored=0 refused={rows} dropped=0");
        says(&told, &counts);
        assert!(peak_mib < UNPACKED_MIB_MAX, "{name}: {peak_mib} MiB");
    }
}

// case Network and input: bytes that unpack to far more than they weigh
#[test]
fn a_size_that_a_file_claims_takes_no_memory() {
    let inputs = machine::root().join("tests/inputs");
    let names = "long_claim.arrow long_unpacked.arrow many_nulls.arrow many_values.parquet";
    for name in names.split(' ') {
        let (told, peak_mib) = measured(&inputs.join(name));
        says(&told, "ingestd: cannot read '");
        assert!(peak_mib < REFUSED_MIB_MAX, "{name}: {peak_mib} MiB");
    }
}
