//! Reads rows of text, for CSV and JSON. The format finds rows among the bytes; here each row becomes one text for each selected column.
//!
//! An invalid row does not affect others, and an endless row takes no memory.

use std::sync::Arc;

use arrow::array::{ArrayRef, LargeStringBuilder};
use loom_engine::proven::at;
use memchr::memchr;

use super::blocks::Blocks;
use super::columns::Column;
use super::rows::Rows;
use super::{BATCH_BYTES, ROW_BYTES_MAX, Reader, Wanted};

/// A format whose rows are text.
pub(super) trait TextFormat: Send {
    type Row<'a>
    where
        Self: 'a;

    fn columns(&self) -> &[Column];

    /// Finds the first row in `data`. `ended` says that no more bytes follow.
    fn next_row<'a>(&'a mut self, data: Data<'a>, ended: bool) -> Step<Self::Row<'a>>;

    /// Appends the row's value of one column, or NULL. An error says why the row is refused; then nothing is appended.
    fn append(
        row: &Self::Row<'_>,
        wanted: &Wanted,
        texts: &mut LargeStringBuilder,
    ) -> Result<(), String>;

    /// Called at the end of the input, before the last notes are taken.
    fn end(&mut self) {}

    /// The new notes for the user.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// The bytes in the buffer. A batch is checked for UTF-8 at once, which is faster than row by row.
#[derive(Copy, Clone)]
pub(super) struct Data<'a> {
    pub bytes: &'a [u8],
    /// The first bytes as text, as far as they were checked and are UTF-8.
    checked: &'a str,
}

impl<'a> Data<'a> {
    fn new(bytes: &'a [u8]) -> Data<'a> {
        let checked = at(bytes, ..bytes.len().min(BATCH_BYTES));
        let checked = str::from_utf8(checked).or_else(|error| {
            let valid = at(checked, ..error.valid_up_to());
            str::from_utf8(valid)
        });
        Data {
            bytes,
            checked: checked.expect("it is valid up to there"),
        }
    }

    /// Skips the first bytes.
    fn from(self, start: usize) -> Data<'a> {
        Data {
            bytes: self.bytes.get(start..).unwrap_or_default(),
            checked: self.checked.get(start..).unwrap_or_default(),
        }
    }

    /// The first bytes as text, if the batch's check covered them.
    pub(super) fn checked(self, bytes: usize) -> Option<&'a str> {
        self.checked.get(..bytes)
    }

    /// The first bytes as text; `None` if they are not UTF-8.
    pub(super) fn text(self, bytes: usize) -> Option<&'a str> {
        let unchecked = || str::from_utf8(self.bytes.get(..bytes)?).ok();
        self.checked(bytes).or_else(unchecked)
    }
}

/// The start of the data, with its length.
pub(super) enum Step<R> {
    Row(R, usize),
    /// Bytes that are not a row.
    Blank(usize),
    /// A row that cannot be read, with the reason.
    Bad(String, usize),
    /// The row does not end within the data and is too long; its first line is skipped.
    TooLong,
    /// The row does not end within the data.
    More,
}

/// The step for a row that does not end within the data.
pub(super) fn unended<R>(data: &[u8]) -> Step<R> {
    if data.len() > ROW_BYTES_MAX {
        Step::TooLong
    } else {
        Step::More
    }
}

/// The length of the first line with its break, or of everything.
pub(super) fn first_line(data: &[u8]) -> usize {
    memchr(b'\n', data).map_or(data.len(), |at| at + 1)
}

/// Reads one input of a text format.
pub(super) struct TextReader<F> {
    blocks: Blocks,
    format: F,
    wanted: Vec<Wanted>,
    /// The rows and bytes of each column in the last batch, an estimate for the next one.
    room: Vec<(usize, usize)>,
    /// The rest of a line that is too long is skipped.
    skipping: bool,
}

impl<F: TextFormat> TextReader<F> {
    pub(super) fn new(blocks: Blocks, format: F) -> TextReader<F> {
        TextReader {
            blocks,
            format,
            wanted: Vec::new(),
            room: Vec::new(),
            skipping: false,
        }
    }

    /// Reads all complete rows in the buffer.
    fn parse(&mut self) -> Rows {
        let mut builders: Vec<_> = self
            .room
            .iter()
            .map(|(rows, bytes)| LargeStringBuilder::with_capacity(*rows, *bytes))
            .collect();
        let mut bad = Vec::new();
        let (mut count, mut read) = (0, 0);
        if self.skipping {
            (read, self.skipping) = skipped(self.blocks.data());
        }
        let all = Data::new(self.blocks.data());
        while read < BATCH_BYTES {
            let data = all.from(read);
            match self.format.next_row(data, self.blocks.ended()) {
                Step::Row(row, bytes) => {
                    for (wanted, texts) in self.wanted.iter().zip(&mut builders) {
                        if let Err(reason) = F::append(&row, wanted, texts) {
                            texts.append_null();
                            bad.push((count, reason));
                        }
                    }
                    read += bytes;
                    count += 1;
                    continue;
                }
                Step::Blank(bytes) => {
                    read += bytes;
                    continue;
                }
                Step::Bad(reason, bytes) => {
                    bad.push((count, reason));
                    read += bytes;
                }
                Step::TooLong => {
                    bad.push((count, format!("it is longer than {ROW_BYTES_MAX} bytes")));
                    let (bytes, skipping) = skipped(data.bytes);
                    (read, self.skipping) = (read + bytes, skipping);
                }
                Step::More => break,
            }
            count += 1;
            builders
                .iter_mut()
                .for_each(LargeStringBuilder::append_null);
        }
        self.blocks.consume(read);
        for (room, texts) in self.room.iter_mut().zip(&builders) {
            *room = (count, texts.values_slice().len());
        }
        let columns = builders
            .iter_mut()
            .map(|builder| Arc::new(builder.finish()) as ArrayRef);
        Rows {
            columns: columns.collect(),
            count,
            bad,
        }
    }
}

/// The bytes of a skipped line in the buffer, and whether it goes on after them.
fn skipped(data: &[u8]) -> (usize, bool) {
    (first_line(data), memchr(b'\n', data).is_none())
}

impl<F: TextFormat> Reader for TextReader<F> {
    fn columns(&self) -> &[Column] {
        self.format.columns()
    }

    fn select(&mut self, wanted: Vec<Wanted>) {
        self.room = vec![(0, 0); wanted.len()];
        self.wanted = wanted;
    }

    fn next(&mut self) -> anyhow::Result<Option<Rows>> {
        loop {
            let rows = self.parse();
            if rows.count > 0 {
                return Ok(Some(rows));
            }
            // Remaining bytes are blank lines or the beginning of a row.
            if !self.blocks.fill()? && self.blocks.data().is_empty() {
                // A row that ends too early is known only now.
                let last = self.parse();
                if last.count > 0 {
                    return Ok(Some(last));
                }
                self.format.end();
                return Ok(None);
            }
        }
    }

    fn fraction(&self) -> Option<f64> {
        self.blocks.fraction()
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.format.take_notes()
    }
}
