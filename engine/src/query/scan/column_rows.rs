//! Rows of one source taken straight from a column segment: column by column, of several chunks at once, or to their places in one chunk.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use super::columns::Columns;
use crate::error::Result;
use crate::format::{FormatError, NumberRange, RangeTotals, Take, UnitRow, Wanted};
use crate::log::{HeldUnit, UnitWanted};
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::query::predicate::Test;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{Layout, Pieces, RangeSet, Slot, Source};
use crate::types::{ChunkNo, Key, SourceId};

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
    /// Rows that do not satisfy it are left out; it names its [fields](Test::each_field).
    pub test: &'a Test,
}

impl Reads {
    pub const ALL: Reads = Reads {
        fields: None,
        times: true,
        addresses: true,
        keys: Vec::new(),
    };

    /// The same column by column, of the rows that satisfy a test; `None` for whole payloads.
    pub(super) fn columns<'a>(&'a self, test: &'a Test) -> Option<ColumnReads<'a>> {
        Some(ColumnReads {
            fields: self.fields.as_deref()?,
            times: self.times,
            addresses: self.addresses,
            together: true,
            beside_others: false,
            keys: &self.keys,
            test,
        })
    }
}

impl ColumnReads<'_> {
    fn is_selective(&self) -> bool {
        !self.keys.is_empty() || !matches!(self.test, Test::All)
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
    passing: Vec<bool>,
}

impl Selection {
    /// Those that satisfy the test and whose fields have the keys, as far as that is known of all rows.
    fn of(&mut self, columns: &Columns<'_>, reads: ColumnReads<'_>) -> Result<(), NoMemory> {
        self.rows.clear();
        memory::reserve(&mut self.rows, columns.count())?;
        self.rows.extend(0..columns.count() as u32);
        for (field, wanted) in reads.keys {
            self.keys.clear();
            memory::reserve(&mut self.keys, columns.count())?;
            let numbers = columns.numbers(*field);
            let layout = columns.layout();
            let known =
                numbers.is_some_and(|numbers| layout.number_keys(*field, numbers, &mut self.keys));
            if !known {
                continue;
            }
            let keys = self.keys.as_slice();
            match wanted.ranges() {
                [(min, max)] => {
                    let width = max.0 - min.0;
                    let is_wanted = |row: usize| at(keys, row).0.wrapping_sub(min.0) <= width;
                    keep(&mut self.rows, is_wanted);
                }
                _ => keep(&mut self.rows, |row| wanted.contains(*at(keys, row))),
            }
        }
        if !matches!(reads.test, Test::All) {
            self.passing.clear();
            memory::resize(&mut self.passing, columns.count())?;
            self.passing.fill(true);
            reads.test.keep(columns, &mut self.passing);
            keep(&mut self.rows, |row| *at(&self.passing, row));
        }
        Ok(())
    }
}

/// Keeps some rows, without a branch for each: which they are cannot be predicted.
fn keep(rows: &mut Vec<u32>, is_kept: impl Fn(usize) -> bool) {
    let cells = Cell::from_mut(rows.as_mut_slice()).as_slice_of_cells();
    let mut kept = 0;
    for row in cells {
        at(cells, kept).set(row.get());
        kept += usize::from(is_kept(row.get() as usize));
    }
    rows.truncate(kept);
}

struct Taken {
    source: SourceId,
    layout: Arc<Layout>,
    pieces: Pieces,
    columns: Option<Wanted>,
    /// What the keys and the test need that rows are left out by.
    deciding: Option<Wanted>,
    /// Both.
    read: Option<Wanted>,
    /// The keys and the test as numbers of pieces, where they can be said so.
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

/// What the keys of these fields and a test need.
fn of_deciding(pieces: &Pieces, keys: &[(usize, RangeSet<Key>)], test: &Test) -> Wanted {
    let mut fields: Vec<usize> = keys.iter().map(|(field, _)| *field).collect();
    let is_named = test.each_field(&mut |field| fields.push(field));
    assert!(is_named, "a test of columns names its fields");
    pieces.wanted_columns(&fields, test.needs_times())
}

/// The numbers of pieces that have these keys and satisfy a test; `None` where that takes the keys.
fn numbers_of(
    layout: &Layout,
    pieces: &Pieces,
    keys: &[(usize, RangeSet<Key>)],
    test: &Test,
) -> Option<Vec<(usize, NumberRange)>> {
    let number = |field: usize, keys: &RangeSet<Key>| {
        let [(min, max)] = keys.ranges() else {
            return None;
        };
        let numbers = layout.number_range(field, *min, *max)?;
        Some((pieces.of_number(field)?, numbers))
    };
    let by_keys = keys.iter().map(|(field, keys)| number(*field, keys));
    // The numbers do not say what is NULL, which no test takes for a value.
    let by_test = test.field_keys()?.into_iter().map(|(field, keys)| {
        let is_number = layout.slot(field)?.null_bit.is_none();
        number(field, keys).filter(|_| is_number)
    });
    by_keys.chain(by_test).collect()
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
            deciding: None,
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
        let read = || of_reads(pieces, reads).and(&of_deciding(pieces, reads.keys, reads.test));
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
        let deciding =
            (of.deciding).get_or_insert_with(|| of_deciding(pieces, reads.keys, reads.test));
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
                columns: Some(of.read.get_or_insert_with(|| columns.and(deciding))),
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
        if !reads.is_selective() {
            return unit.columns(taken, &take).map(end_of).map_err(undecoded);
        }
        let numbers = of
            .numbers
            .get_or_insert_with(|| numbers_of(&of.layout, pieces, reads.keys, reads.test));
        if let Some(numbers) = numbers.as_ref().filter(|numbers| !numbers.is_empty()) {
            let end = unit.columns_where(taken, &take, numbers);
            return end.map(end_of).map_err(undecoded);
        }
        // First what decides: perhaps no row is left, and nothing else is decoded.
        let deciding = Take {
            wanted: deciding,
            addresses: false,
            ..take
        };
        let no_memory = |refused: NoMemory| logs.undecoded(first, refused);
        let mut wanted_end = taken.end;
        loop {
            let found = unit.columns(nth..wanted_end, &deciding);
            let Some(end) = found.map_err(undecoded)? else {
                return Ok(None);
            };
            let columns = Columns {
                layout: &of.layout,
                pieces,
                rows: unit.found(),
            };
            let all = columns.count();
            selection.of(&columns, reads).map_err(no_memory)?;
            let selected = selection.rows.as_slice();
            if !selected.is_empty() {
                let found = unit.columns(nth..end, &take);
                let Some(end_of_all) = found.map_err(undecoded)? else {
                    return Ok(None);
                };
                // Anchors may end it earlier where addresses are wanted.
                if end_of_all < end {
                    wanted_end = end_of_all;
                    continue;
                }
            }
            if selected.len() < all {
                unit.select(selected).map_err(no_memory)?;
            }
            return Ok(end_of(Some(end)));
        }
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
            .get_or_insert_with(|| numbers_of(&of.layout, pieces, keys, &Test::All));
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
            columns: Some(
                (of.deciding).get_or_insert_with(|| of_deciding(pieces, keys, &Test::All)),
            ),
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
