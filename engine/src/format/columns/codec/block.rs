//! Any block, as a row group has it: opened from foreign bytes, and then asked.

use std::ops::Range;

use super::cursor::Cursor;
use super::encoding::{Decode, Encoding, Run};
use super::members::Members;
use super::nest::{Inner, Open, Outer, hand_on};
use super::scaled::Scaled;
use crate::format::bytes::{FormatError, invalid};
use crate::format::columns::number_range::{NumberRange, RangeTotals};

pub enum Block<'a> {
    Alone(Outer<'a>),
    OfMembers(Members<'a, Inner<'a>>),
    Scaled(Scaled<Inner<'a>>),
    ScaledOfMembers(Scaled<Members<'a, Inner<'a>>>),
}

impl<'a> Block<'a> {
    /// Takes a block of so many rows from the front, without decoding it. `floats`: the numbers are bits of an f64 (8 bytes) or an f32 (4). `members`: how
    /// many of the rows each member has, at least one, of those that share them; empty where none do.
    pub fn open(
        cursor: &mut Cursor<'a>,
        rows: usize,
        floats: Option<u8>,
        members: &'a [usize],
    ) -> Result<Block<'a>, FormatError> {
        let mut encoding = Encoding::of(cursor.byte()?)?;
        let scaled = match (encoding, floats) {
            (Encoding::Scaled, Some(float_bytes)) => {
                let exponent = cursor.byte()?;
                encoding = Encoding::of(cursor.byte()?)?;
                Some((exponent, float_bytes))
            }
            (Encoding::Scaled, None) => {
                return invalid("the encoding of a column", Encoding::Scaled as u64);
            }
            _ => None,
        };
        let is_of_members = encoding == Encoding::Members && !members.is_empty();
        Ok(match (scaled, is_of_members) {
            (None, false) => Block::Alone(Outer::open_as(encoding, cursor, rows)?),
            (None, true) => Block::OfMembers(Members::open(cursor, members, Inner::open)?),
            (Some((exponent, float_bytes)), false) => {
                let whole = Inner::open_as(encoding, cursor, rows)?;
                Block::Scaled(Scaled::of(exponent, float_bytes, whole))
            }
            (Some((exponent, float_bytes)), true) => {
                let whole = Members::open(cursor, members, Inner::open)?;
                Block::ScaledOfMembers(Scaled::of(exponent, float_bytes, whole))
            }
        })
    }

    fn held(&self) -> &(dyn Decode + 'a) {
        match self {
            Block::Alone(block) => block,
            Block::OfMembers(block) => block,
            Block::Scaled(block) => block,
            Block::ScaledOfMembers(block) => block,
        }
    }
}

impl Decode for Block<'_> {
    hand_on!(block => block.held());
}
