//! Opens the blocks of foreign bytes and checks their encodings and their depth. Bytes never lead deeper than [`LEVELS`].

use super::constant::Constant;
use super::cursor::Cursor;
use super::dictionary::Dictionary;
use super::differences::Differences;
use super::encoding::{Block, Encoding, LEVELS};
use super::masked::Masked;
use super::members::Members;
use super::packed::Packed;
use super::runs::Runs;
use super::scaled::Scaled;
use crate::format::bytes::{FormatError, invalid};

/// Takes a block of `rows` rows from the front, without decoding it. With `floats` the numbers are bits of an f64 (8 bytes) or an f32 (4). `members` holds the
/// rows of each member, at least one, where several share the block; it is empty otherwise.
pub fn open_block<'a>(
    cursor: &mut Cursor<'a>,
    rows: usize,
    floats: Option<u8>,
    members: &'a [usize],
) -> Result<Block<'a>, FormatError> {
    let encoding = Encoding::of(cursor.byte()?)?;
    match (encoding, floats) {
        (Encoding::Scaled, Some(float_bytes)) => {
            let exponent = cursor.byte()?;
            let encoding = Encoding::of(cursor.byte()?)?;
            Ok(Box::new(Scaled {
                exponent,
                float_bytes,
                whole: of_rows(encoding, cursor, rows, 1, members)?,
            }))
        }
        (Encoding::Scaled, None) => invalid("the encoding of a column", encoding as u64),
        _ => of_rows(encoding, cursor, rows, 0, members),
    }
}

/// Opens the rows as one column or member by member.
fn of_rows<'a>(
    encoding: Encoding,
    cursor: &mut Cursor<'a>,
    rows: usize,
    level: u8,
    members: &'a [usize],
) -> Result<Block<'a>, FormatError> {
    if encoding != Encoding::Members || members.is_empty() {
        return of_column(encoding, cursor, rows, level);
    }
    let firsts = within(cursor, members.len(), 1)?;
    Ok(Box::new(Members::open(cursor, members, firsts)?))
}

/// Opens a block nested at `level`.
fn within<'a>(cursor: &mut Cursor<'a>, rows: usize, level: u8) -> Result<Block<'a>, FormatError> {
    let encoding = Encoding::of(cursor.byte()?)?;
    of_column(encoding, cursor, rows, level)
}

fn of_column<'a>(
    encoding: Encoding,
    cursor: &mut Cursor<'a>,
    rows: usize,
    level: u8,
) -> Result<Block<'a>, FormatError> {
    Ok(match encoding {
        Encoding::Constant => Box::new(Constant::open(cursor, rows)?),
        Encoding::Packed => Box::new(Packed::open(cursor, rows)?),
        Encoding::Differences => Box::new(Differences::open(cursor, rows)?),
        Encoding::Masked => Box::new(Masked::open(cursor, rows)?),
        Encoding::Runs if level < LEVELS => {
            let runs = cursor.count(rows)?;
            Box::new(Runs {
                rows,
                values: within(cursor, runs, level + 1)?,
                lengths: within(cursor, runs, LEVELS)?,
            })
        }
        Encoding::Dictionary if level < LEVELS => {
            let values = cursor.count(rows)?;
            Box::new(Dictionary {
                values: within(cursor, values, level + 1)?,
                places: cursor.packed(rows)?,
            })
        }
        other => return invalid("the encoding of a block in a column", other as u64),
    })
}
