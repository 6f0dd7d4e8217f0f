//! The strings behind the pieces of a row group's rows.

use std::cell::RefCell;
use std::ops::Range;

use zstd::zstd_safe::DCtx;

use super::bits::accumulate;
use super::codec::Cursor;
use super::groups::TailForm;
use crate::format::bytes::{FormatError, invalid};
use crate::memory::{self, NoMemory};
use crate::proven::at;

/// The approximate memory of a zstd decompression.
const CONTEXT_BYTES: usize = 160 << 10;

thread_local! {
    /// Making a context takes as long as decompressing the strings of a row group.
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Strings of bytes: string `i` ends at `ends[i]` and begins at the end of the one before.
#[derive(Debug, Default)]
pub struct Tail {
    ends: Vec<u64>,
    bytes: Vec<u8>,
    /// The bytes of all strings, once their ends are known to fit.
    all_bytes: usize,
}

impl Tail {
    #[inline]
    pub fn string(&self, row: usize) -> &[u8] {
        at(&self.bytes, self.place(row))
    }

    pub fn length(&self, row: usize) -> usize {
        self.place(row).len()
    }

    pub fn all_bytes(&self) -> usize {
        self.all_bytes
    }

    #[inline]
    fn place(&self, row: usize) -> Range<usize> {
        let start = match row {
            0 => 0,
            _ => *at(&self.ends, row - 1),
        };
        start as usize..*at(&self.ends, row) as usize
    }

    pub fn of<'a>(
        strings: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    ) -> Result<Tail, NoMemory> {
        let mut tail = Tail::default();
        memory::reserve(&mut tail.ends, strings.len())?;
        memory::reserve(&mut tail.bytes, strings.clone().map(<[u8]>::len).sum())?;
        for string in strings {
            tail.bytes.extend_from_slice(string);
            tail.ends.push(tail.bytes.len() as u64);
        }
        tail.all_bytes = tail.bytes.len();
        Ok(tail)
    }

    pub fn of_lengths(lengths: Vec<u64>) -> Tail {
        Tail {
            ends: lengths,
            ..Tail::default()
        }
    }

    /// Turns lengths into ends, the last at most `room`, and subtracts it from `room`.
    pub fn find_ends(&mut self, room: &mut usize) -> Result<(), FormatError> {
        let most = *room as u64;
        if let Some(length) = self.ends.iter().find(|length| **length > most) {
            return invalid("the length of a field", *length);
        }
        accumulate(0, &mut self.ends);
        let all = self.ends.last().copied().unwrap_or(0);
        if all > most {
            return invalid("the length of the fields of a row group", all);
        }
        self.all_bytes = all as usize;
        *room -= self.all_bytes;
        Ok(())
    }

    /// Decodes the bytes of all strings, or passes over them.
    pub fn decode(&mut self, is_wanted: bool, strings: &mut Cursor<'_>) -> Result<(), FormatError> {
        let bytes = self.all_bytes;
        let form = strings.byte()?;
        let length = match form {
            _ if form == TailForm::Plain as u8 => bytes,
            _ if form == TailForm::Zstd as u8 => {
                usize::try_from(strings.number()?).unwrap_or(usize::MAX)
            }
            _ => return invalid("the form of the fields of a row group", form.into()),
        };
        let stored = strings.bytes(length)?;
        if !is_wanted {
            return Ok(());
        }
        if form == TailForm::Plain as u8 {
            self.bytes = memory::copied(stored)?;
            return Ok(());
        }
        let mut plain = memory::zeroed(bytes)?;
        match decompress(stored, &mut plain)? {
            Some(length) if length == bytes => self.bytes = plain,
            _ => return invalid("the compressed fields of a row group", bytes as u64),
        }
        Ok(())
    }
}

/// Decompresses a frame into `plain` and returns its length; `None` if it is not such a frame.
fn decompress(frame: &[u8], plain: &mut [u8]) -> Result<Option<usize>, NoMemory> {
    CONTEXT.with_borrow_mut(|context| {
        if context.is_none() {
            // The plain constructor panics if memory for the context is refused.
            *context = DCtx::try_create();
        }
        let context = context.as_mut().ok_or(NoMemory {
            bytes: CONTEXT_BYTES,
        })?;
        Ok(context.decompress(plain, frame).ok())
    })
}
