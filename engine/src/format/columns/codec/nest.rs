//! Blocks within blocks: which encodings may stand how deep. Foreign bytes cannot lead deeper than these types.

use std::ops::Range;

use super::constant::Constant;
use super::cursor::Cursor;
use super::dictionary::Dictionary;
use super::differences::Differences;
use super::encoding::{Decode, Encoding, Run};
use super::masked::Masked;
use super::packed::Packed;
use super::runs::Runs;
use crate::format::bytes::FormatError;
use crate::format::columns::number_range::{NumberRange, RangeTotals};

/// A block without others in it.
pub enum Flat<'a> {
    Constant(Constant),
    Packed(Packed<'a>),
    Differences(Differences<'a>),
    Masked(Masked<'a>),
}

/// A block that may have blocks in it, which are `V`.
pub enum Nest<'a, V> {
    Flat(Flat<'a>),
    Runs(Runs<V, Flat<'a>>),
    Dictionary(Dictionary<'a, V>),
}

/// A block whose blocks have none.
pub type Inner<'a> = Nest<'a, Flat<'a>>;
/// A block that stands in no other.
pub type Outer<'a> = Nest<'a, Inner<'a>>;

/// Takes the block of so many rows, that begins with an encoding, from the front of what follows that.
pub trait Open<'a>: Decode + Sized {
    fn open_as(
        encoding: Encoding,
        cursor: &mut Cursor<'a>,
        rows: usize,
    ) -> Result<Self, FormatError>;

    fn open(cursor: &mut Cursor<'a>, rows: usize) -> Result<Self, FormatError> {
        let encoding = Encoding::of(cursor.byte()?)?;
        Self::open_as(encoding, cursor, rows)
    }
}

impl<'a> Open<'a> for Flat<'a> {
    fn open_as(
        encoding: Encoding,
        cursor: &mut Cursor<'a>,
        rows: usize,
    ) -> Result<Flat<'a>, FormatError> {
        Ok(match encoding {
            Encoding::Constant => Flat::Constant(Constant::open(cursor, rows)?),
            Encoding::Packed => Flat::Packed(Packed::open(cursor, rows)?),
            Encoding::Differences => Flat::Differences(Differences::open(cursor, rows)?),
            Encoding::Masked => Flat::Masked(Masked::open(cursor, rows)?),
            other => return other.misplaced(),
        })
    }
}

impl<'a, V: Open<'a> + 'a> Open<'a> for Nest<'a, V> {
    fn open_as(
        encoding: Encoding,
        cursor: &mut Cursor<'a>,
        rows: usize,
    ) -> Result<Nest<'a, V>, FormatError> {
        Ok(match encoding {
            Encoding::Runs => Nest::Runs(Runs::open(cursor, rows, V::open, Flat::open)?),
            Encoding::Dictionary => Nest::Dictionary(Dictionary::open(cursor, rows, V::open)?),
            other => Nest::Flat(Flat::open_as(other, cursor, rows)?),
        })
    }
}

/// Hands every question on to what an enum holds.
macro_rules! hand_on {
    ($block:ident => $inner:expr) => {
        fn rows(&self) -> usize {
            let $block = self;
            $inner.rows()
        }

        fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
            let $block = self;
            $inner.decode(out)
        }

        fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
            let $block = self;
            $inner.pick(rows, out)
        }

        fn find(&self, wanted: NumberRange, found: &mut Vec<u32>) -> Result<(), FormatError> {
            let $block = self;
            $inner.find(wanted, found)
        }

        fn totals(
            &self,
            rows: Range<usize>,
            wanted: NumberRange,
        ) -> Result<RangeTotals, FormatError> {
            let $block = self;
            $inner.totals(rows, wanted)
        }

        fn runs(&self, out: &mut Vec<Run>) -> Result<(), FormatError> {
            let $block = self;
            $inner.runs(out)
        }
    };
}
pub(super) use hand_on;

impl<'a> Flat<'a> {
    fn held(&self) -> &(dyn Decode + 'a) {
        match self {
            Flat::Constant(block) => block,
            Flat::Packed(block) => block,
            Flat::Differences(block) => block,
            Flat::Masked(block) => block,
        }
    }
}

impl<'a, V: Decode + 'a> Nest<'a, V> {
    fn held(&self) -> &(dyn Decode + 'a) {
        match self {
            Nest::Flat(block) => block,
            Nest::Runs(block) => block,
            Nest::Dictionary(block) => block,
        }
    }
}

impl Decode for Flat<'_> {
    hand_on!(block => block.held());
}

impl<'a, V: Decode + 'a> Decode for Nest<'a, V> {
    hand_on!(block => block.held());
}
