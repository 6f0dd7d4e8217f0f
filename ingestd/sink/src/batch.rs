//! Payloads on their way into a directory, with what is known of the rows that they were made of.

/// Payloads of one source, framed for `Writer::push_batch` and for the socket.
#[derive(Debug, Default)]
pub struct InputBatch {
    /// For each payload a u16 length and its bytes, packed.
    pub bytes: Vec<u8>,
    /// How many payloads there are.
    pub rows: u64,
    /// The number of the batch's first row in its input, from 1.
    pub first_row: u64,
    /// The rows that are no payload, ascending by row number, with the reason.
    pub refused: Vec<(u64, String)>,
    /// The input's name, and what it calls a row.
    pub input: String,
    pub row_noun: &'static str,
    /// Notes about columns that change or are left out, each once.
    pub notes: Vec<String>,
}

impl InputBatch {
    /// One sentence about a row that is refused.
    pub fn refusal(&self, (row, reason): &(u64, String)) -> String {
        let InputBatch {
            input, row_noun, ..
        } = self;
        format!("{row_noun} {row} of {input} is refused: {reason}")
    }

    /// How many rows the input gave, refused ones too.
    pub fn received(&self) -> u64 {
        self.rows + self.refused.len() as u64
    }

    /// The number of the row that the payload with this ordinal, from 0, was made of.
    pub fn row_of(&self, ordinal: u64) -> u64 {
        let mut row = self.first_row + ordinal;
        for (refused, _) in &self.refused {
            row += u64::from(*refused <= row);
        }
        row
    }
}
