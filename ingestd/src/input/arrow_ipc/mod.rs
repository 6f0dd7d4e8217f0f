//! Reads both forms of Arrow IPC: streams, decoded as bytes come, and files, whose footer has the positions of the batches.
//!
//! `messages` finds the messages, `limits` checks them, and the library decodes them.

mod limits;
mod messages;

use std::sync::Arc;

use anyhow::Context;
use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::ipc::reader::FileDecoder;

use super::blocks::Blocks;
use super::columns::Column;
use super::rows::Rows;
use super::{BATCH_ROWS, Reader, Wanted};
pub(crate) use messages::FILE_MAGIC;
use messages::Messages;

pub(crate) struct ArrowIpc {
    name: String,
    messages: Messages,
    decoder: FileDecoder,
    columns: Vec<Column>,
    wanted: Vec<usize>,
    /// The current batch, and how many of its rows were returned.
    batch: Option<(RecordBatch, usize)>,
    rows_read: u64,
}

impl ArrowIpc {
    pub(crate) fn open(blocks: Blocks) -> anyhow::Result<ArrowIpc> {
        let name = blocks.name().to_owned();
        let (schema, version, messages) =
            Messages::open(blocks).with_context(|| format!("cannot read {name} as Arrow IPC"))?;
        let columns = columns_of(&schema);
        Ok(ArrowIpc {
            name,
            messages,
            decoder: FileDecoder::new(Arc::new(schema), version),
            columns,
            wanted: Vec::new(),
            batch: None,
            rows_read: 0,
        })
    }

    fn next_batch(&mut self) -> anyhow::Result<Option<RecordBatch>> {
        while let Some(message) = self.messages.next()? {
            if message.is_dictionary {
                self.decoder
                    .read_dictionary(&message.block, &message.bytes)?;
                continue;
            }
            let batch = self
                .decoder
                .read_record_batch(&message.block, &message.bytes)?;
            if batch.is_some() {
                return Ok(batch);
            }
        }
        Ok(None)
    }
}

fn columns_of(schema: &Schema) -> Vec<Column> {
    let fields = schema.fields().iter();
    let column = |field: &arrow::datatypes::FieldRef| {
        Column::of_arrow(field.name(), field.data_type(), field.is_nullable(), None)
    };
    fields.map(column).collect()
}

impl Reader for ArrowIpc {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn select(&mut self, wanted: Vec<Wanted>) {
        self.wanted = wanted.iter().map(|wanted| wanted.column).collect();
    }

    fn next(&mut self) -> anyhow::Result<Option<Rows>> {
        loop {
            if let Some((batch, given)) = &mut self.batch {
                let rows = BATCH_ROWS.min(batch.num_rows() - *given);
                if rows > 0 {
                    let part = batch.slice(*given, rows);
                    *given += rows;
                    self.rows_read += rows as u64;
                    return Rows::of_batch(&part, &self.wanted).map(Some);
                }
            }
            // Frees the batch before the next one is decoded.
            self.batch = None;
            let next = self.next_batch().with_context(|| {
                format!("cannot read {} after row {}", self.name, self.rows_read)
            })?;
            match next {
                Some(batch) => self.batch = Some((batch, 0)),
                None => return Ok(None),
            }
        }
    }

    /// An error here comes again when the rows are read.
    fn may_have_rows(&mut self) -> bool {
        self.messages.may_have_rows().unwrap_or(true)
    }

    fn fraction(&self) -> Option<f64> {
        self.messages.fraction()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
    use arrow::ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use arrow::ipc::{CompressionType, MetadataVersion};

    use super::*;
    use crate::input::testing::{load, load_files, options, payloads, read_all, try_load};
    use crate::input::{Format, open};

    fn batch(from: i64, rows: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + rows));
        let floats: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN; rows as usize]));
        let texts = (0..rows).map(|row| (row % 2 == 0).then_some("ä"));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let columns = [
            ("n", numbers, false),
            ("x", floats, false),
            ("s", texts, true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    #[test]
    fn files_and_streams_give_the_same() {
        let compressed = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)
            .and_then(|options| options.try_with_compression(Some(CompressionType::LZ4_FRAME)));
        let (mut file, mut stream) = (Vec::new(), Vec::new());
        let schema = batch(0, 0).schema();
        let mut files =
            FileWriter::try_new_with_options(&mut file, &schema, compressed.unwrap()).unwrap();
        let mut streams = StreamWriter::try_new(&mut stream, &schema).unwrap();
        for batch in [batch(0, 20_000), batch(20_000, 0), batch(20_000, 2)] {
            files.write(&batch).unwrap();
            streams.write(&batch).unwrap();
        }
        files.finish().unwrap();
        streams.finish().unwrap();
        let (file, stream) = (
            load(&file, Format::Arrow, options()),
            load(&stream, Format::Arrow, options()),
        );
        assert_eq!(file.fields(), ["n i64", "x f64", "s utf8?"]);
        assert_eq!(file.lines().len(), 20_002);
        assert_eq!(file.lines()[20_001], "20001|NaN|-");
        assert_eq!(file.lines(), stream.lines());
    }

    /// The same batches as a file and as a stream.
    fn written(batches: &[RecordBatch]) -> [Vec<u8>; 2] {
        let (mut file, mut stream) = (Vec::new(), Vec::new());
        let schema = batches[0].schema();
        let mut files = FileWriter::try_new(&mut file, &schema).unwrap();
        let mut streams = StreamWriter::try_new(&mut stream, &schema).unwrap();
        for batch in batches {
            files.write(batch).unwrap();
            streams.write(batch).unwrap();
        }
        files.finish().unwrap();
        streams.finish().unwrap();
        [file, stream]
    }

    #[test]
    fn what_has_no_rows_adds_no_field_beside_what_has_rows() {
        let one = |column: ArrayRef| RecordBatch::try_from_iter([("n", column)]).unwrap();
        let few = written(&[one(Arc::new(Int64Array::from(vec![7])))]);
        let late = written(&[batch(0, 0), batch(0, 0), batch(3, 1)]);
        for place in 0..2 {
            let empty = written(&[batch(0, 0), batch(0, 0)])[place].clone();
            let files = [empty.clone(), few[place].clone(), empty.clone()];
            let loaded = load_files(&files, Format::Arrow, options());
            assert_eq!(loaded.fields(), ["n i64"]);
            assert_eq!(loaded.lines(), ["7"]);
            let loaded = load_files(&[empty, late[place].clone()], Format::Arrow, options());
            assert_eq!(loaded.lines(), ["3|NaN|ä"]);
        }
    }

    #[test]
    fn a_stream_that_is_cut_short_before_its_first_row_is_an_error_beside_others() {
        let [_, full] = written(&[batch(0, 1)]);
        let [_, empty] = written(&[batch(0, 0)]);
        let dir = tempfile::tempdir().unwrap();
        let paths = ["whole", "cut"].map(|name| dir.path().join(name));
        std::fs::write(&paths[0], &full).unwrap();
        for cut in [&empty[..empty.len() - 4], &full[..full.len() / 2]] {
            std::fs::write(&paths[1], cut).unwrap();
            let input = open(&paths, Some(Format::Arrow), options());
            let error = input.and_then(read_all).err().unwrap();
            assert!(format!("{error:#}").contains("cut'"), "{error:#}");
        }
    }

    #[test]
    fn a_batch_is_there_before_the_stream_goes_on() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut writer = StreamWriter::try_new(writer, &batch(0, 0).schema()).unwrap();
        writer.write(&batch(0, 1)).unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        let mut input = open(&[path], Some(Format::Arrow), options()).unwrap();
        for number in 1..4 {
            let given = input.next_batch().unwrap().unwrap();
            let rows = payloads(input.source(), &given);
            assert_eq!(rows[0][0], Some((number - 1).to_string()));
            writer.write(&batch(number, 1)).unwrap();
            writer.get_mut().flush().unwrap();
        }
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let mut stream = Vec::new();
        let mut writer = StreamWriter::try_new(&mut stream, &batch(0, 0).schema()).unwrap();
        writer.write(&batch(0, 10)).unwrap();
        drop(writer);
        let error = try_load(&stream[..stream.len() - 20], Format::Arrow, options())
            .err()
            .unwrap();
        assert!(
            format!("{error:#}").contains("the stream ends within a message"),
            "{error:#}"
        );
        let end_of_stream = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
        let error = try_load(&end_of_stream, Format::Arrow, options());
        let error = error.err().unwrap();
        assert!(
            format!("{error:#}").contains("holds no schema"),
            "{error:#}"
        );
    }
}
