//! Rows of one source as their columns: what operators and the extension read of a unit that stands in columns.

use std::ops::Range;

use crate::format::StreamRows;
use crate::schema::{FieldPieces, Layout, Pieces};
use crate::types::{TimeRange, Timestamp};

/// Rows of one source in log order, column by column.
#[derive(Copy, Clone)]
pub struct Columns<'a> {
    pub(super) layout: &'a Layout,
    pub(super) pieces: &'a Pieces,
    /// `None`: there are none.
    pub(super) rows: Option<StreamRows<'a>>,
}

/// What a field holds in each of some rows. NULL has any value.
pub enum FieldColumn<'a> {
    /// Numbers, each in its lowest bytes.
    Numbers(&'a [u64]),
    /// Bytes in one place, 8 at a time, the first ones lowest; of the last, as many as are left.
    Words(Vec<&'a [u64]>),
    /// Strings of any length.
    Strings(Vec<&'a [u8]>),
}

impl<'a> Columns<'a> {
    pub fn count(&self) -> usize {
        self.rows.map_or(0, |rows| rows.count())
    }

    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// Some of them.
    pub fn part(self, range: Range<usize>) -> Columns<'a> {
        Columns {
            rows: self.rows.map(|rows| rows.part(range)),
            ..self
        }
    }

    /// The source's own times where it has them, else arrivals, in the bits of an `i64`.
    ///
    /// # Panics
    /// They are not read.
    pub fn times(&self) -> &'a [u64] {
        let Some(rows) = self.rows else {
            return &[];
        };
        let times = match self.pieces.of_time() {
            Some(piece) => rows.piece(piece),
            None => rows.arrivals(),
        };
        times.expect("the times are read")
    }

    /// Their addresses.
    ///
    /// # Panics
    /// They are not read.
    pub fn addresses(&self) -> &'a [u64] {
        match self.rows {
            Some(rows) => rows.addresses().expect("the addresses are read"),
            None => &[],
        }
    }

    /// Which of them lie within `times`, where they lie one behind the other.
    pub(crate) fn within(&self, times: TimeRange) -> Option<Range<usize>> {
        let found = self.times();
        let time_of = |time: &u64| Timestamp(*time as i64);
        if self.pieces.of_time().is_some() {
            let is_inside = found.iter().all(|time| times.contains(time_of(time)));
            return is_inside.then_some(0..found.len());
        }
        let first = found.partition_point(|time| time_of(time) < times.first);
        let end = found.partition_point(|time| time_of(time) <= times.last);
        Some(first..end.max(first))
    }

    /// The least and the greatest time; `None` without rows.
    pub(crate) fn span(&self) -> Option<TimeRange> {
        let mut times = self.times().iter().map(|time| Timestamp(*time as i64));
        let (first, last) = match self.pieces.of_time() {
            Some(_) => (times.clone().min()?, times.max()?),
            None => (times.clone().next()?, times.next_back()?),
        };
        Some(TimeRange { first, last })
    }

    /// The numbers of a field; `None` if the layout is older than the field, or the field is not a number.
    pub fn numbers(&self, field: usize) -> Option<&'a [u64]> {
        self.piece(self.pieces.of_number(field)?)
    }

    /// What a field holds; `None`: the layout is older than the field, which is NULL.
    ///
    /// # Panics
    /// The field is not read.
    pub fn field(&self, field: usize) -> Option<FieldColumn<'a>> {
        Some(match self.pieces.of_field(field)? {
            FieldPieces::Fixed(pieces) => {
                let read = |piece| self.piece(piece).expect("the field is read");
                let ty = self.layout.slot(field)?.ty;
                match ty.kind() {
                    Some(_) => FieldColumn::Numbers(read(pieces.start)),
                    None => FieldColumn::Words(pieces.clone().map(read).collect()),
                }
            }
            FieldPieces::Strings(nth) => FieldColumn::Strings(match self.rows {
                Some(rows) => rows.strings(*nth).expect("the field is read").collect(),
                None => Vec::new(),
            }),
        })
    }

    /// Which rows have NULL in a field; `None`: none has.
    pub fn nulls(&self, field: usize) -> Option<impl Fn(usize) -> bool + use<'a>> {
        let bit = self.layout.slot(field)?.null_bit?;
        let (piece, bit) = self.pieces.of_null_bit(bit);
        let words = self.piece(piece).expect("the field is read");
        Some(move |row: usize| words.get(row).is_some_and(|word| word >> bit & 1 == 1))
    }

    fn piece(&self, piece: usize) -> Option<&'a [u64]> {
        match self.rows {
            Some(rows) => rows.piece(piece),
            None => Some(&[]),
        }
    }
}
