//! A batch of payloads on their way into a directory, and the rows that they come from.

/// Payloads of one source, framed for `Writer::push_batch` and for the socket.
#[derive(Debug, Default)]
pub struct InputBatch {
    /// The payloads, packed, each after its u16 length.
    pub bytes: Vec<u8>,
    /// The number of payloads.
    pub rows: u64,
    /// The number of the batch's first row in its input, from 1.
    pub first_row: u64,
    /// The rows that could not become a payload, ascending by row number, with the reason.
    pub refused: Vec<(u64, String)>,
    /// The input's name, and its word for a row.
    pub input: String,
    pub row_noun: &'static str,
    /// Notes about columns that change or are omitted, each once.
    pub notes: Vec<String>,
}

impl InputBatch {
    /// A sentence about a refused row.
    pub fn refusal(&self, (row, reason): &(u64, String)) -> String {
        let InputBatch {
            input, row_noun, ..
        } = self;
        format!("{row_noun} {row} of {input} is refused: {reason}")
    }

    /// How many rows came from the input, with the refused ones.
    pub fn received(&self) -> u64 {
        self.rows + self.refused.len() as u64
    }

    /// The row number of the payload with this ordinal, which starts at 0.
    pub fn row_of(&self, ordinal: u64) -> u64 {
        let mut row = self.first_row + ordinal;
        for (refused, _) in &self.refused {
            row += u64::from(*refused <= row);
        }
        row
    }
}
