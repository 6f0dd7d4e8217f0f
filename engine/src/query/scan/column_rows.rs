//! Rows of one source taken straight from a column segment: column by column, of several chunks at once, or to their places in one chunk.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::format::{FormatError, NumberRange, RangeTotals, StreamRows, Take, UnitRow, Wanted};
use crate::log::{HeldUnit, UnitWanted};
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{FieldPieces, Layout, Pieces, RangeSet, Slot, Source};
use crate::types::{ChunkNo, Key, SourceId, TimeRange, Timestamp};

/// What is read of rows.
#[derive(Clone, Debug)]
pub struct Reads {
    /// The fields that are read; `None`: whole payloads.
    pub fields: Option<Vec<usize>>,
    pub times: bool,
    pub addresses: bool,
    /// Rows where one of these fields has another key, or is NULL, may be left out.
    pub keys: Vec<(usize, RangeSet<Key>)>,
}

/// What is read column by column.
#[derive(Copy, Clone)]
pub(in crate::query) struct ColumnReads<'a> {
    pub fields: &'a [usize],
    pub times: bool,
    pub addresses: bool,
    /// The rows of several chunks may be taken at once.
    pub together: bool,
    /// Other sources' rows are taken from the same unit too: it is read whole.
    pub beside_others: bool,
    pub keys: &'a [(usize, RangeSet<Key>)],
}

impl Reads {
    pub const ALL: Reads = Reads {
        fields: None,
        times: true,
        addresses: true,
        keys: Vec::new(),
    };

    /// The same column by column; `None` for whole payloads.
    pub(super) fn columns(&self) -> Option<ColumnReads<'_>> {
        Some(ColumnReads {
            fields: self.fields.as_deref()?,
            times: self.times,
            addresses: self.addresses,
            together: true,
            beside_others: false,
            keys: &self.keys,
        })
    }
}

/// Rows of one source in log order, column by column.
#[derive(Copy, Clone)]
pub struct Columns<'a> {
    layout: &'a Layout,
    pieces: &'a Pieces,
    /// `None`: there are none.
    rows: Option<StreamRows<'a>>,
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

/// Takes rows from columns, for one thread.
pub(super) struct ColumnRows {
    held: HeldUnit,
    /// How the payloads of each source are taken apart, by the layout that was met last. Ascending by source.
    of: Vec<Taken>,
    /// Which of them is of the source whose rows were taken last.
    latest: usize,
    rows: Vec<UnitRow>,
    selection: Selection,
}

/// Which of some rows are not left out.
#[derive(Default)]
struct Selection {
    rows: Vec<u32>,
    keys: Vec<Key>,
}

impl Selection {
    /// Those whose fields have these keys, as far as that is known of all rows.
    fn of(
        &mut self,
        columns: &Columns<'_>,
        wanted: &[(usize, RangeSet<Key>)],
    ) -> Result<(), NoMemory> {
        self.rows.clear();
        memory::reserve(&mut self.rows, columns.count())?;
        self.rows.extend(0..columns.count() as u32);
        for (field, wanted) in wanted {
            self.keys.clear();
            memory::reserve(&mut self.keys, columns.count())?;
            let numbers = columns.numbers(*field);
            let layout = columns.layout();
            let known =
                numbers.is_some_and(|numbers| layout.number_keys(*field, numbers, &mut self.keys));
            if !known {
                continue;
            }
            match wanted.ranges() {
                [(min, max)] => self.leave(min.0, max.0),
                _ => {
                    let keys = self.keys.as_slice();
                    self.rows
                        .retain(|row| wanted.contains(*at(keys, *row as usize)));
                }
            }
        }
        Ok(())
    }

    /// Leaves the rows with keys from `min` to `max`, without a branch for each: which they are cannot be predicted.
    fn leave(&mut self, min: u64, max: u64) {
        let width = max - min;
        let rows = Cell::from_mut(self.rows.as_mut_slice()).as_slice_of_cells();
        let mut kept = 0;
        for row in rows {
            let key = at(&self.keys, row.get() as usize);
            at(rows, kept).set(row.get());
            kept += usize::from(key.0.wrapping_sub(min) <= width);
        }
        self.rows.truncate(kept);
    }
}

struct Taken {
    source: SourceId,
    layout: Arc<Layout>,
    pieces: Pieces,
    columns: Option<Wanted>,
    /// What the keys need that rows are left out by.
    keys: Option<Wanted>,
    /// Both.
    read: Option<Wanted>,
    /// The same as numbers of pieces, where it can be said so.
    numbers: Option<Option<Vec<(usize, NumberRange)>>>,
    payloads: Option<Wanted>,
}

/// What is decoded where rows are taken column by column.
fn of_reads(pieces: &Pieces, reads: ColumnReads<'_>) -> Wanted {
    Wanted {
        lengths: reads.addresses,
        ..pieces.wanted_columns(reads.fields, reads.times)
    }
}

/// What the keys of these fields need.
fn of_keys(pieces: &Pieces, keys: &[(usize, RangeSet<Key>)]) -> Wanted {
    let fields: Vec<usize> = keys.iter().map(|(field, _)| *field).collect();
    pieces.wanted_columns(&fields, false)
}

/// The numbers of pieces that have these keys; `None` where that takes the keys.
fn numbers_of(
    layout: &Layout,
    pieces: &Pieces,
    keys: &[(usize, RangeSet<Key>)],
) -> Option<Vec<(usize, NumberRange)>> {
    let numbers = keys.iter().map(|(field, keys)| {
        let [(min, max)] = keys.ranges() else {
            return None;
        };
        let numbers = layout.number_range(*field, *min, *max)?;
        Some((pieces.of_number(*field)?, numbers))
    });
    numbers.collect()
}

impl ColumnRows {
    pub fn new(logs: &SnapshotLogs) -> ColumnRows {
        ColumnRows {
            held: logs.held_unit(),
            of: Vec::new(),
            latest: 0,
            rows: Vec::new(),
            selection: Selection::default(),
        }
    }

    fn of(
        &mut self,
        source: &Source,
        layout: &Arc<Layout>,
    ) -> (&mut HeldUnit, &mut Taken, &mut Selection) {
        let taken = || Taken {
            source: source.id,
            layout: Arc::clone(layout),
            pieces: Pieces::of(source.id, layout),
            columns: None,
            keys: None,
            read: None,
            numbers: None,
            payloads: None,
        };
        // The same source again, or the next one, most of the time.
        let is_of = |nth: &usize| {
            let of = self.of.get(*nth);
            of.is_some_and(|of| of.source == source.id)
        };
        let near = (self.latest..=self.latest + 1).find(is_of);
        self.latest = near.unwrap_or_else(|| {
            let found = self.of.binary_search_by_key(&source.id, |of| of.source);
            found.unwrap_or_else(|nth| {
                self.of.insert(nth, taken());
                nth
            })
        });
        let of = at_mut(&mut self.of, self.latest);
        if !Arc::ptr_eq(&of.layout, layout) {
            *of = taken();
        }
        (&mut self.held, of, &mut self.selection)
    }

    /// Has fetched what `columns` will read of some chunks, of which the first has this layout.
    pub fn will_read(
        &mut self,
        logs: &SnapshotLogs,
        chunks: &[ChunkNo],
        source: &Source,
        layout: &Arc<Layout>,
        reads: ColumnReads<'_>,
    ) {
        let (_, of, _) = self.of(source, layout);
        let pieces = &of.pieces;
        let read = || of_reads(pieces, reads).and(&of_keys(pieces, reads.keys));
        let wanted = UnitWanted::Columns {
            source: source.id,
            chunks: 1,
            columns: Some(of.read.get_or_insert_with(read)),
            addresses: reads.addresses,
        };
        logs.will_read_columns(chunks, wanted);
    }

    /// Finds the rows of some chunks of one layout, and returns the end of these. `None`: the first must be read whole.
    ///
    /// # Errors
    /// A part of the unit that is needed does not verify, or retention removed it meanwhile.
    pub fn columns(
        &mut self,
        logs: &SnapshotLogs,
        chunks: Range<u64>,
        source: &Source,
        layout: &Arc<Layout>,
        reads: ColumnReads<'_>,
    ) -> Result<Option<u64>> {
        let (held, of, selection) = self.of(source, layout);
        let pieces = &of.pieces;
        let columns = of.columns.get_or_insert_with(|| of_reads(pieces, reads));
        let of_keys = of.keys.get_or_insert_with(|| of_keys(pieces, reads.keys));
        let take = Take {
            template: pieces.template(),
            wanted: columns,
            addresses: reads.addresses,
        };
        let count = (chunks.end - chunks.start) as usize;
        let wanted = match reads.beside_others {
            true => UnitWanted::All,
            false => UnitWanted::Columns {
                source: source.id,
                chunks: count,
                columns: Some(of.read.get_or_insert_with(|| columns.and(of_keys))),
                addresses: reads.addresses,
            },
        };
        let first = ChunkNo(chunks.start);
        let Some((unit, nth)) = logs.column_unit(first, wanted, held)? else {
            return Ok(None);
        };
        let undecoded = |error: FormatError| logs.undecoded(first, error);
        let taken = nth..nth + if reads.together { count } else { 1 };
        let end_of = |end: Option<usize>| end.map(|end| chunks.start + (end - nth) as u64);
        if reads.keys.is_empty() {
            return unit.columns(taken, &take).map(end_of).map_err(undecoded);
        }
        let numbers = of
            .numbers
            .get_or_insert_with(|| numbers_of(&of.layout, pieces, reads.keys));
        if let Some(numbers) = numbers {
            let end = unit.columns_where(taken, &take, numbers);
            return end.map(end_of).map_err(undecoded);
        }
        // First what decides: perhaps no row is left, and nothing else is decoded.
        let deciding = Take {
            wanted: of_keys,
            addresses: false,
            ..take
        };
        let Some(end) = unit.columns(taken, &deciding).map_err(undecoded)? else {
            return Ok(None);
        };
        let columns = Columns {
            layout: &of.layout,
            pieces,
            rows: unit.found(),
        };
        let all = columns.count();
        let no_memory = |refused: NoMemory| logs.undecoded(first, refused);
        selection.of(&columns, reads.keys).map_err(no_memory)?;
        let selected = selection.rows.as_slice();
        if !selected.is_empty() {
            let end_of_all = unit.columns(nth..end, &take).map_err(undecoded)?;
            // Anchors may end it earlier where addresses are wanted: nothing is left out then.
            if end_of_all.is_none_or(|of_all| of_all < end) {
                return Ok(end_of(end_of_all));
            }
        }
        if selected.len() < all {
            unit.select(selected).map_err(no_memory)?;
        }
        Ok(end_of(Some(end)))
    }

    /// What the values of a field are together whose keys are wanted, in some chunks of one layout, and the end of these. `None`: the rows must be asked
    /// for.
    ///
    /// # Errors
    /// As [`ColumnRows::columns`].
    pub fn totals(
        &mut self,
        logs: &SnapshotLogs,
        chunks: Range<u64>,
        source: &Source,
        layout: &Arc<Layout>,
        keys: &[(usize, RangeSet<Key>)],
    ) -> Result<Option<(u64, RangeTotals)>> {
        let (held, of, _) = self.of(source, layout);
        let pieces = &of.pieces;
        let numbers = of
            .numbers
            .get_or_insert_with(|| numbers_of(&of.layout, pieces, keys));
        let (Some(&[numbers]), [(field, _)]) = (numbers.as_deref(), keys) else {
            return Ok(None);
        };
        let has_nulls = |slot: Slot| slot.null_bit.is_some();
        if of.layout.slot(*field).is_none_or(has_nulls) {
            return Ok(None);
        }
        let count = (chunks.end - chunks.start) as usize;
        let wanted = UnitWanted::Columns {
            source: source.id,
            chunks: count,
            columns: Some(of.keys.get_or_insert_with(|| of_keys(pieces, keys))),
            addresses: false,
        };
        let first = ChunkNo(chunks.start);
        let Some((unit, nth)) = logs.column_unit(first, wanted, held)? else {
            return Ok(None);
        };
        let found = unit.totals(nth..nth + count, pieces.template(), numbers);
        let found = found.map_err(|error| logs.undecoded(first, error))?;
        Ok(found.map(|(end, totals)| (chunks.start + (end - nth) as u64, totals)))
    }

    /// The rows that `columns` found.
    ///
    /// # Panics
    /// It was never asked.
    pub fn view(&self) -> Columns<'_> {
        let of = at(&self.of, self.latest);
        Columns {
            layout: &of.layout,
            pieces: &of.pieces,
            rows: self.held.unit().and_then(|unit| unit.found()),
        }
    }

    /// Takes the rows of a chunk to their places in `bytes`; false: it must be read whole.
    ///
    /// # Errors
    /// As [`ColumnRows::columns`].
    pub fn rows(
        &mut self,
        logs: &SnapshotLogs,
        chunk: ChunkNo,
        source: &Source,
        layout: &Arc<Layout>,
        fields: Option<&[usize]>,
        bytes: &mut [u8],
    ) -> Result<bool> {
        let mut rows = std::mem::take(&mut self.rows);
        let (held, of, _) = self.of(source, layout);
        let pieces = &of.pieces;
        let take = Take {
            template: pieces.template(),
            wanted: (of.payloads).get_or_insert_with(|| pieces.wanted(fields)),
            addresses: true,
        };
        let found = match logs.column_unit(chunk, UnitWanted::All, held) {
            Ok(Some((unit, nth))) => unit
                .rows(nth, &take, bytes, &mut rows)
                .map_err(|error| logs.undecoded(chunk, error)),
            other => other.map(|_| false),
        };
        self.rows = rows;
        found
    }

    /// The rows that `rows` took.
    pub fn unit_rows(&self) -> impl Iterator<Item = &UnitRow> {
        self.rows.iter()
    }
}
