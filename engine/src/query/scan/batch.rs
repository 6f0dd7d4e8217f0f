//! A batch: rows of one source in log order, column by column. Operators, exports and the extension read records only as batches.

use std::ops::Range;

use super::records::RecordRows;
use crate::format::StreamRows;
use crate::proven::at;
use crate::schema::{FieldPieces, Layout, Pieces};
use crate::types::{Address, TimeRange, Timestamp};

/// One record for functions of the library's users.
#[derive(Copy, Clone)]
pub struct RecordView<'a> {
    /// The source's own time if it has one, else arrival.
    pub ts: Timestamp,
    pub address: Address,
    pub payload: &'a [u8],
    pub layout: &'a Layout,
}

/// Rows of one source and one layout, with the columns that were asked for.
#[derive(Copy, Clone)]
pub struct Batch<'a> {
    pub(super) layout: &'a Layout,
    pub(super) pieces: &'a Pieces,
    pub(super) rows: BatchRows<'a>,
}

/// A buffer in which payloads are put together.
#[derive(Default)]
pub struct PayloadRoom {
    starts: Vec<u32>,
    bytes: Vec<u8>,
}

/// The origin of rows.
#[derive(Copy, Clone)]
pub(super) enum BatchRows<'a> {
    /// There are none.
    Nowhere,
    Unit(StreamRows<'a>),
    Chunk(RecordRows<'a>),
}

/// The values of a field in some rows. NULL has any value.
pub enum FieldColumn<'a> {
    /// Numbers, each in its lowest bytes.
    Numbers(&'a [u64]),
    /// Bytes in one place, in words of 8 with the first byte lowest; the last word holds the rest.
    Words(Vec<&'a [u64]>),
    Strings(Strings<'a>),
    /// Few different strings, and the number of each row's string among them.
    Shared {
        strings: Vec<&'a [u8]>,
        codes: &'a [u64],
    },
}

/// Strings of any length.
pub struct Strings<'a> {
    bytes: &'a [u8],
    places: Vec<Range<u32>>,
}

impl<'a> Strings<'a> {
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let bytes = self.bytes;
        let places = self.places.iter();
        places.map(move |place| at(bytes, place.start as usize..place.end as usize))
    }

    /// Returns the bytes of all strings together, and where each starts among them, if no other bytes lie between them.
    pub fn joined(&self) -> Option<(&'a [u8], impl Iterator<Item = usize>)> {
        let (first, last) = (self.places.first()?.start, self.places.last()?.end);
        let mut pairs = self.places.windows(2);
        let is_joined = pairs.all(|pair| matches!(pair, [one, next] if one.end == next.start));
        let starts = self
            .places
            .iter()
            .map(move |place| (place.start - first) as usize);
        is_joined.then(|| (at(self.bytes, first as usize..last as usize), starts))
    }
}

impl<'a> Batch<'a> {
    pub fn count(&self) -> usize {
        match &self.rows {
            BatchRows::Nowhere => 0,
            BatchRows::Unit(rows) => rows.count(),
            BatchRows::Chunk(rows) => rows.count(),
        }
    }

    pub fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// Restricts it to some rows.
    pub fn part(self, range: Range<usize>) -> Batch<'a> {
        Batch {
            rows: match self.rows {
                BatchRows::Nowhere => BatchRows::Nowhere,
                BatchRows::Unit(rows) => BatchRows::Unit(rows.part(range)),
                BatchRows::Chunk(rows) => BatchRows::Chunk(rows.part(range)),
            },
            ..self
        }
    }

    /// The source's own times if it has them, else arrivals, as bits of an `i64`.
    ///
    /// # Panics
    /// Panics if they were not read.
    pub fn times(&self) -> &'a [u64] {
        match self.pieces.of_time() {
            Some(piece) => self.piece(piece).expect("the times are read"),
            None => self.arrivals(),
        }
    }

    /// Arrivals, as bits of an `i64`.
    ///
    /// # Panics
    /// Panics if they were not read.
    pub fn arrivals(&self) -> &'a [u64] {
        let arrivals = match &self.rows {
            BatchRows::Nowhere => return &[],
            BatchRows::Unit(rows) => rows.arrivals(),
            BatchRows::Chunk(rows) => rows.arrivals(),
        };
        arrivals.expect("the arrivals are read")
    }

    /// Returns the addresses.
    ///
    /// # Panics
    /// Panics if they were not read.
    pub fn addresses(&self) -> &'a [u64] {
        let addresses = match &self.rows {
            BatchRows::Nowhere => return &[],
            BatchRows::Unit(rows) => rows.addresses(),
            BatchRows::Chunk(rows) => rows.addresses(),
        };
        addresses.expect("the addresses are read")
    }

    /// Returns the least and the greatest time; `None` without rows.
    pub(crate) fn span(&self) -> Option<TimeRange> {
        let mut times = self.times().iter().map(|time| Timestamp(*time as i64));
        let (first, last) = match self.pieces.of_time() {
            Some(_) => (times.clone().min()?, times.max()?),
            None => (times.clone().next()?, times.next_back()?),
        };
        Some(TimeRange { first, last })
    }

    /// Returns the numbers of a field; `None` if the layout is older than the field or the field is not a number.
    pub fn numbers(&self, field: usize) -> Option<&'a [u64]> {
        self.piece(self.pieces.of_number(field)?)
    }

    /// Returns the values of a field; `None` if the layout is older than the field, which is then NULL.
    ///
    /// # Panics
    /// Panics if the field was not read.
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
            FieldPieces::Strings(nth) => match self.shared(field) {
                Some((strings, codes)) => FieldColumn::Shared { strings, codes },
                None => {
                    let (bytes, places) = self.string_places(*nth);
                    FieldColumn::Strings(Strings { bytes, places })
                }
            },
        })
    }

    /// Passes the bytes of a field in each row to `each`, `None` for NULL.
    ///
    /// # Panics
    /// Panics if the field was not read.
    pub fn each_value(&self, field: usize, mut each: impl FnMut(Option<&[u8]>)) {
        if self.layout.slot(field).is_none() {
            return (0..self.count()).for_each(|_| each(None));
        }
        let (nulls, mut room) = (self.nulls(field), Vec::new());
        let is_null = |row: usize| nulls.as_ref().is_some_and(|is_null| is_null(row));
        let (bytes, places) = self.places(field, &mut room);
        for (row, place) in places.into_iter().enumerate() {
            let value = at(bytes, place.start as usize..place.end as usize);
            each(Some(value).filter(|_| !is_null(row)));
        }
    }

    /// Returns a test for rows with NULL in a field; `None` if no row has it.
    pub fn nulls(&self, field: usize) -> Option<impl Fn(usize) -> bool + use<'a>> {
        let bit = self.layout.slot(field)?.null_bit?;
        let (piece, bit) = self.pieces.of_null_bit(bit);
        let words = self.piece(piece).expect("the field is read");
        let is_in_some = words.iter().fold(0, |all, word| all | word) >> bit & 1 == 1;
        is_in_some
            .then_some(move |row: usize| words.get(row).is_some_and(|word| word >> bit & 1 == 1))
    }

    /// Returns the payload of each row; `room` holds payloads that are put together.
    ///
    /// # Panics
    /// Panics if payloads were not read.
    pub fn payloads<'b>(
        &self,
        room: &'b mut PayloadRoom,
    ) -> impl ExactSizeIterator<Item = &'b [u8]> + Clone + use<'a, 'b>
    where
        'a: 'b,
    {
        let PayloadRoom { starts, bytes } = room;
        if let BatchRows::Unit(rows) = &self.rows {
            rows.payloads(self.pieces.template(), starts, bytes);
        }
        let (rows, starts, bytes) = (self.rows, starts.as_slice(), bytes.as_slice());
        (0..self.count()).map(move |row| match &rows {
            BatchRows::Chunk(rows) => rows.payload(row),
            _ => {
                let (start, end) = (*at(starts, row), *at(starts, row + 1));
                at(bytes, start as usize..end as usize)
            }
        })
    }

    /// Returns the rows for functions of the library's users, if everything was asked for.
    pub(crate) fn records<'b>(
        &self,
        room: &'b mut PayloadRoom,
    ) -> impl Iterator<Item = RecordView<'b>> + use<'a, 'b>
    where
        'a: 'b,
    {
        let layout = self.layout;
        let places = self.times().iter().zip(self.addresses());
        let rows = places.zip(self.payloads(room));
        rows.map(move |((ts, address), payload)| RecordView {
            ts: Timestamp(*ts as i64),
            address: Address(*address),
            payload,
            layout,
        })
    }

    fn piece(&self, piece: usize) -> Option<&'a [u64]> {
        match &self.rows {
            BatchRows::Nowhere => Some(&[]),
            BatchRows::Unit(rows) => rows.piece(piece),
            BatchRows::Chunk(rows) => rows.piece(piece),
        }
    }

    /// Returns bytes, and where the value of a field lies among them in each row. NULL has any place; `room` holds bytes that are put together.
    ///
    /// # Panics
    /// Panics if the field was not read, or if the layout is older than the field.
    pub(crate) fn places<'b>(
        &self,
        field: usize,
        room: &'b mut Vec<u8>,
    ) -> (&'b [u8], Vec<Range<u32>>)
    where
        'a: 'b,
    {
        if let Some(FieldPieces::Strings(nth)) = self.pieces.of_field(field) {
            return self.string_places(*nth);
        }
        let words = match self.field(field) {
            Some(FieldColumn::Numbers(numbers)) => vec![numbers],
            Some(FieldColumn::Words(words)) => words,
            _ => unreachable!("any other field of the layout has strings"),
        };
        let slot = self.layout.slot(field);
        let width = slot.and_then(|slot| slot.ty.fixed_bytes());
        let width = width.expect("a field in words or numbers has a fixed width") as u32;
        room.clear();
        for row in 0..self.count() {
            let words = words.iter().map(|words| at(words, row).to_le_bytes());
            words.for_each(|word| room.extend_from_slice(&word));
        }
        let step = words.len() as u32 * 8;
        let starts = (0..self.count() as u32).map(|row| row * step);
        (room, starts.map(|start| start..start + width).collect())
    }

    fn string_places(&self, nth: usize) -> (&'a [u8], Vec<Range<u32>>) {
        let places = match self.rows {
            BatchRows::Nowhere => Some((<&[u8]>::default(), Vec::new())),
            BatchRows::Unit(rows) => rows.string_places(nth),
            BatchRows::Chunk(rows) => rows.string_places(nth),
        };
        places.expect("the strings are read")
    }

    /// Returns the strings of a field if rows share them, and the number of each row's string among them.
    pub(crate) fn shared(&self, field: usize) -> Option<(Vec<&'a [u8]>, &'a [u64])> {
        match (self.pieces.of_field(field)?, self.rows) {
            (FieldPieces::Strings(nth), BatchRows::Unit(rows)) => rows.shared(*nth),
            _ => None,
        }
    }
}
