//! Reads the rows of one source, batch by batch: from a unit where a chunk stands in one, decoded as far as they are asked for, else from the chunk's records.
//!
//! Either way, first what decides which rows are left out is read, and the rest of those that remain. Several readers may share a cursor in turns.

use std::ops::Range;
use std::sync::Arc;

use super::ask::Ask;
use super::batch::{Batch, BatchRows};
use super::chunk_cursor::ChunkCursor;
use super::column_filter::keep_keys;
use super::records::{Records, keep, within};
use crate::error::Result;
use crate::format::{NumberRange, RangeTotals, Run, Take, Wanted};
use crate::log::UnitWanted;
use crate::memory::{self, NoMemory};
use crate::proven::at;
use crate::query::predicate::Test;
use crate::schema::{Layout, Pieces, RangeSet, Slot, Source};
use crate::types::{Address, ChunkNo, Key, TimeRange};

/// Reads rows of a source, for one thread.
pub(crate) struct SourceReader {
    source: Arc<Source>,
    ask: Ask,
    /// Rows that do not satisfy it are left out, and so are those that arrived outside of a range or stand below an address.
    test: Test,
    arrived: TimeRange,
    after: Address,
    /// A batch begins with its last row.
    newest_first: bool,
    of: Prepared,
    records: Records,
    selection: Selection,
    found: Found,
}

/// Where the rows of the last batch are.
enum Found {
    Nowhere,
    /// These of the rows that the cursor's unit has found.
    Unit(Range<usize>),
    /// In the cursor's chunk.
    Chunk,
}

/// What rows of one layout take.
struct Prepared {
    layout: Arc<Layout>,
    pieces: Pieces,
    /// What is asked for, and what the keys and the test need that rows are left out by: of records, whose payloads lie in the chunk.
    asked: Wanted,
    deciding: Wanted,
    /// The same of units, with what says which rows arrived outside of a range; and both of them.
    of_unit: Wanted,
    deciding_of_unit: Wanted,
    read: Wanted,
    /// The keys and the test as numbers of pieces, where they can be said so.
    numbers: Option<Vec<(usize, NumberRange)>>,
}

/// Which of some rows are not left out.
#[derive(Default)]
struct Selection {
    passing: Vec<bool>,
    rows: Vec<u32>,
}

impl SourceReader {
    /// Of the rows that satisfy a test, whose times lie in a range and whose addresses are not below one.
    pub fn new(
        source: &Arc<Source>,
        ask: Ask,
        test: Test,
        times: TimeRange,
        after: Address,
    ) -> SourceReader {
        let (test, arrived) = match source.own_time() {
            true => (Test::and([Test::time(times), test]), TimeRange::ALL),
            false => (test, times),
        };
        SourceReader {
            of: Prepared::of(source.layout_at(after), source, &ask, &test, arrived),
            source: Arc::clone(source),
            ask,
            test,
            arrived,
            after,
            newest_first: false,
            records: Records::default(),
            selection: Selection::default(),
            found: Found::Nowhere,
        }
    }

    /// Of the rows that satisfy a test, from the newest of a chunk to the oldest.
    pub fn newest_first(source: &Arc<Source>, ask: Ask, test: Test) -> SourceReader {
        SourceReader {
            newest_first: true,
            ..SourceReader::new(source, ask, test, TimeRange::ALL, Address::ZERO)
        }
    }

    /// Leaves out the rows below an address too. Nothing was read.
    pub fn begin_at(&mut self, after: Address) {
        assert!(
            !self.newest_first,
            "the rows of a unit are cut in their order"
        );
        self.after = after;
    }

    /// Has fetched what is read of some chunks soon that stand alone.
    pub fn expect(&self, cursor: &ChunkCursor, chunks: impl Iterator<Item = ChunkNo>) {
        let wanted = UnitWanted::Columns {
            source: self.source.id,
            chunks: 1,
            columns: Some(&self.of.read),
            addresses: self.ask.addresses,
        };
        cursor.expect(chunks, wanted);
    }

    /// Reads the rows of the first of some chunks that are wanted in a row, and of as many behind it as can be taken together. Returns the end of these.
    ///
    /// # Errors
    /// What is needed does not verify, or retention removed it meanwhile.
    pub fn read(&mut self, cursor: &mut ChunkCursor, chunks: Range<ChunkNo>) -> Result<ChunkNo> {
        if let Some(end) = self.read_unit(cursor, chunks.clone())? {
            return Ok(end);
        }
        self.read_chunk(cursor, chunks.clone())?;
        Ok(ChunkNo(chunks.start.0 + 1))
    }

    /// The same of a chunk that stands in no unit; the others are read next.
    ///
    /// # Errors
    /// As [`SourceReader::read`].
    pub fn read_chunk(&mut self, cursor: &mut ChunkCursor, chunks: Range<ChunkNo>) -> Result<()> {
        self.found = Found::Nowhere;
        cursor.load_of(chunks.start, chunks.end)?;
        cursor.find_runs(self.source.id)?;
        self.take_runs(cursor, cursor.runs())
    }

    /// The same of the records at some offsets in a chunk that stands in no unit. False: the offsets say too little. `span` is the arrival of the
    /// chunk's first and last record.
    ///
    /// # Errors
    /// As [`SourceReader::read`].
    pub fn read_records(
        &mut self,
        cursor: &mut ChunkCursor,
        chunk: ChunkNo,
        offsets: &[u32],
        span: TimeRange,
    ) -> Result<bool> {
        self.found = Found::Nowhere;
        let is_read = cursor.load_records(self.source.id, chunk, offsets, span)?;
        if is_read {
            self.take_runs(cursor, cursor.runs())?;
        }
        Ok(is_read)
    }

    /// Reads nothing: the next batch is empty.
    pub fn pass(&mut self) {
        self.found = Found::Nowhere;
    }

    /// What was read last.
    pub fn batch<'a>(&'a self, cursor: &'a ChunkCursor) -> Batch<'a> {
        let rows = match &self.found {
            Found::Nowhere => BatchRows::Nowhere,
            Found::Chunk => BatchRows::Chunk(self.records.rows(cursor.bytes())),
            Found::Unit(range) => match cursor.found() {
                Some(rows) => BatchRows::Unit(rows.part(range.clone())),
                None => BatchRows::Nowhere,
            },
        };
        self.of.batch(rows)
    }

    /// Takes rows straight from a unit. `None`: the first chunk stands in none, or not as it is asked for.
    ///
    /// # Errors
    /// As [`SourceReader::read`].
    pub fn read_unit(
        &mut self,
        cursor: &mut ChunkCursor,
        chunks: Range<ChunkNo>,
    ) -> Result<Option<ChunkNo>> {
        self.found = Found::Nowhere;
        let Some(mut chunks) = cursor.enter(chunks, &self.source) else {
            return Ok(None);
        };
        let base = cursor.base();
        self.enter(base);
        let is_cut = base < self.after;
        if is_cut {
            chunks.end = ChunkNo(chunks.start.0 + 1);
        }
        let end = self.find_in_unit(cursor, chunks.clone(), is_cut)?;
        let Some(end) = end else {
            return Ok(None);
        };
        cursor.count_read(end.0 - chunks.start.0);
        let Some(rows) = cursor.found() else {
            return Ok(Some(end));
        };
        let mut range = 0..rows.count();
        if self.arrived != TimeRange::ALL {
            let arrivals = rows
                .arrivals()
                .expect("arrivals are read where they decide");
            range = within(arrivals, self.arrived);
        }
        if is_cut {
            let addresses = rows
                .addresses()
                .expect("addresses are read where they decide");
            let first = addresses.partition_point(|address| Address(*address) < self.after);
            range.start = range.start.max(first).min(range.end);
        }
        if !range.is_empty() {
            self.found = Found::Unit(range);
        }
        Ok(Some(end))
    }

    fn find_in_unit(
        &mut self,
        cursor: &mut ChunkCursor,
        chunks: Range<ChunkNo>,
        is_cut: bool,
    ) -> Result<Option<ChunkNo>> {
        let of = &self.of;
        let addresses = self.ask.addresses || is_cut;
        let cut;
        let (asked, read) = match is_cut {
            false => (&of.of_unit, &of.read),
            true => {
                cut = of.of_unit.and(&Wanted::lengths());
                (&cut, &of.read.and(&cut))
            }
        };
        let columns = UnitWanted::Columns {
            source: self.source.id,
            chunks: (chunks.end.0 - chunks.start.0) as usize,
            columns: Some(read),
            addresses,
        };
        let wanted = match self.ask.payloads {
            true => UnitWanted::All,
            false => columns,
        };
        let (logs, unit) = cursor.unit(chunks.start, wanted)?;
        let Some((unit, nth)) = unit else {
            return Ok(None);
        };
        let take = Take {
            template: of.pieces.template(),
            wanted: asked,
            addresses,
        };
        let undecoded = |error| logs.undecoded(chunks.start, error);
        let no_memory = |refused: NoMemory| logs.undecoded(chunks.start, refused);
        let mut taken = nth..nth + (chunks.end.0 - chunks.start.0) as usize;
        let end_of = |end: usize| Some(ChunkNo(chunks.start.0 + (end - nth) as u64));
        if !self.leaves_out() && !self.newest_first {
            let end = unit.columns(taken, &take).map_err(undecoded)?;
            return Ok(end.and_then(end_of));
        }
        if let Some(numbers) = of.numbers.as_ref().filter(|_| !self.newest_first) {
            let end = unit.columns_where(taken, &take, numbers);
            return Ok(end.map_err(undecoded)?.and_then(end_of));
        }
        // First what decides: perhaps no row is left, and nothing else is decoded.
        let deciding = Take {
            wanted: &of.deciding_of_unit,
            addresses: false,
            ..take
        };
        loop {
            let Some(end) = unit.columns(taken.clone(), &deciding).map_err(undecoded)? else {
                return Ok(None);
            };
            let rows = unit.found().map_or(BatchRows::Nowhere, BatchRows::Unit);
            let batch = of.batch(rows);
            let all = batch.count();
            let selected = self.selection.of(&batch, &self.ask.keys, &self.test);
            selected.map_err(no_memory)?;
            if self.newest_first {
                self.selection.rows.reverse();
            }
            let selected = self.selection.rows.as_slice();
            if !selected.is_empty() {
                let found = unit.columns(nth..end, &take).map_err(undecoded)?;
                let Some(end_of_all) = found else {
                    return Ok(None);
                };
                // Anchors may end it earlier where addresses are wanted.
                if end_of_all < end {
                    taken.end = end_of_all;
                    continue;
                }
            }
            if selected.len() < all || self.newest_first && all > 0 {
                unit.select(selected).map_err(no_memory)?;
            }
            return Ok(end_of(end));
        }
    }

    /// Takes the records of some runs of the cursor's chunk, which are the source's.
    ///
    /// # Errors
    /// A record does not fit its source's fields.
    pub fn take_runs(&mut self, cursor: &ChunkCursor, runs: &[Run]) -> Result<()> {
        self.found = Found::Nowhere;
        let (base, chunk) = (cursor.base(), cursor.bytes());
        self.enter(base);
        let Some((first, last)) = runs.first().zip(runs.last()) else {
            return Ok(());
        };
        let arrived = TimeRange {
            first: first.arrival(chunk, 0),
            last: last.arrival(chunk, last.records - 1),
        };
        let is_inside = self.arrived.covers(arrived);
        let of = &self.of;
        // To leave rows out by keys alone does not pay where nothing else is read of them.
        let has_more = !self.ask.keys.is_empty() && !of.deciding.covers(&of.asked);
        let leaves_out = has_more || !matches!(self.test, Test::All);
        let (records, template) = (&mut self.records, of.pieces.template());
        let arrivals = !is_inside || of.asked.arrivals || of.deciding.arrivals;
        let undecoded = |error| cursor.undecoded(error);
        let no_memory = |refused: NoMemory| cursor.undecoded(refused.into());
        (records.find(template, chunk, runs, arrivals)).map_err(undecoded)?;
        if base < self.after {
            records.keep_from(base, self.after);
        }
        if !is_inside {
            records.keep_arrived(self.arrived);
        }
        if self.newest_first {
            records.reverse();
        }
        match &of.numbers {
            _ if !leaves_out => {}
            Some(numbers) => {
                let kept = records.keep_numbers(template, chunk, numbers);
                kept.map_err(no_memory)?;
            }
            None => {
                (records.gather(template, &of.deciding, chunk)).map_err(undecoded)?;
                let batch = of.batch(BatchRows::Chunk(records.rows(chunk)));
                let selected = self.selection.of(&batch, &self.ask.keys, &self.test);
                selected.map_err(no_memory)?;
                let passing = self.selection.passing.as_slice();
                records.keep(|row| *at(passing, row));
            }
        }
        if records.count() == 0 {
            return Ok(());
        }
        (records.gather(template, &of.asked, chunk)).map_err(undecoded)?;
        if self.ask.addresses {
            records.find_addresses(base).map_err(no_memory)?;
        }
        self.found = Found::Chunk;
        Ok(())
    }

    /// What the values of the field together are whose keys are asked for, in some chunks, and the end of these. `None`: the rows must be read.
    ///
    /// # Errors
    /// As [`SourceReader::read`].
    pub fn totals(
        &mut self,
        cursor: &mut ChunkCursor,
        chunks: Range<ChunkNo>,
    ) -> Result<Option<(ChunkNo, RangeTotals)>> {
        let Some(chunks) = cursor.enter(chunks, &self.source) else {
            return Ok(None);
        };
        let base = cursor.base();
        self.enter(base);
        let of = &self.of;
        let (Some(&[numbers]), [(field, _)]) = (of.numbers.as_deref(), self.ask.keys.as_slice())
        else {
            return Ok(None);
        };
        let has_nulls = |slot: Slot| slot.null_bit.is_some();
        if base < self.after || of.layout.slot(*field).is_none_or(has_nulls) {
            return Ok(None);
        }
        let count = (chunks.end.0 - chunks.start.0) as usize;
        let wanted = UnitWanted::Columns {
            source: self.source.id,
            chunks: count,
            columns: Some(&of.deciding_of_unit),
            addresses: false,
        };
        let (logs, unit) = cursor.unit(chunks.start, wanted)?;
        let Some((unit, nth)) = unit else {
            return Ok(None);
        };
        let found = unit.totals(nth..nth + count, of.pieces.template(), numbers);
        let found = found.map_err(|error| logs.undecoded(chunks.start, error))?;
        Ok(found.map(|(end, totals)| {
            let read = (end - nth) as u64;
            cursor.count_read(read);
            (ChunkNo(chunks.start.0 + read), totals)
        }))
    }

    /// Rows are left out by what their payloads hold, or by own times.
    fn leaves_out(&self) -> bool {
        !self.ask.keys.is_empty() || !matches!(self.test, Test::All)
    }

    /// From now on rows have the layout of an address.
    fn enter(&mut self, base: Address) {
        let layout = self.source.layout_at(base);
        if !Arc::ptr_eq(&self.of.layout, layout) {
            let (source, ask) = (&self.source, &self.ask);
            self.of = Prepared::of(layout, source, ask, &self.test, self.arrived);
        }
    }
}

impl Prepared {
    fn of(
        layout: &Arc<Layout>,
        source: &Source,
        ask: &Ask,
        test: &Test,
        arrived: TimeRange,
    ) -> Prepared {
        let pieces = Pieces::of(source.id, layout);
        let all_if = |is_all: bool, wanted: &Wanted| match is_all {
            true => Wanted::all(pieces.template()),
            false => wanted.clone(),
        };
        let mut asked = pieces.wanted_columns(&ask.fields, ask.times);
        asked.arrivals |= ask.arrivals;
        asked.lengths = ask.addresses;
        let mut of_unit = all_if(ask.payloads, &asked);
        of_unit.arrivals |= arrived != TimeRange::ALL;
        let mut fields: Vec<usize> = ask.keys.iter().map(|(field, _)| *field).collect();
        let is_known = test.each_field(&mut |field| fields.push(field));
        let deciding = pieces.wanted_columns(&fields, test.needs_times());
        let deciding_of_unit = all_if(!is_known, &deciding);
        Prepared {
            read: of_unit.and(&deciding_of_unit),
            numbers: numbers_of(layout, &pieces, &ask.keys, test),
            asked,
            deciding,
            of_unit,
            deciding_of_unit,
            pieces,
            layout: Arc::clone(layout),
        }
    }

    fn batch<'a>(&'a self, rows: BatchRows<'a>) -> Batch<'a> {
        Batch {
            layout: &self.layout,
            pieces: &self.pieces,
            rows,
        }
    }
}

/// The numbers of pieces that have these keys and satisfy a test; `None` where that takes the keys, or there are none.
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
    let all: Vec<_> = by_keys.chain(by_test).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

impl Selection {
    /// Those whose fields have the keys and that satisfy the test.
    fn of(
        &mut self,
        batch: &Batch<'_>,
        keys: &[(usize, RangeSet<Key>)],
        test: &Test,
    ) -> Result<(), NoMemory> {
        let count = batch.count();
        self.passing.clear();
        memory::resize(&mut self.passing, count)?;
        self.passing.fill(true);
        for (field, keys) in keys {
            keep_keys(batch, *field, keys, &mut self.passing);
        }
        test.keep(batch, &mut self.passing);
        self.rows.clear();
        memory::reserve(&mut self.rows, count)?;
        self.rows.extend(0..count as u32);
        let passing = self.passing.as_slice();
        keep(&mut self.rows, |nth, _| *at(passing, nth));
        Ok(())
    }
}
