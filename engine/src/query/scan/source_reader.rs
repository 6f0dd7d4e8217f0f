//! Reads the rows of one source in batches: the asked parts from a unit if the chunk is in one, else from the chunk's records.
//!
//! It first reads the columns that decide which rows are omitted, and then the rest for the remaining rows. Several readers may share a cursor in turns.

use std::ops::Range;
use std::sync::Arc;

use super::ask::Ask;
use super::batch::{Batch, BatchRows};
use super::chunk_cursor::ChunkCursor;
use super::column_filter::keep_keys;
use super::records::{Records, keep, within};
use super::row_tests::Tests;
use crate::error::Result;
use crate::format::{NumberRange, RangeTotals, Run, Take, Wanted, Zone};
use crate::log::UnitWanted;
use crate::memory::{self, NoMemory};
use crate::proven::at;
use crate::query::predicate::Test;
use crate::query::zone_test::Zones;
use crate::schema::{Layout, Pieces, RangeSet, Slot, Source};
use crate::types::{Address, ChunkNo, Key, TimeRange};

/// Reads rows of a source, for one thread.
pub(crate) struct SourceReader {
    source: Arc<Source>,
    ask: Ask,
    /// Omits rows that do not satisfy them, that arrived outside of a range, or that lie below an address.
    tests: Tests,
    arrived: TimeRange,
    after: Address,
    /// A batch begins with its last row.
    newest_first: bool,
    of: Prepared,
    records: Records,
    selection: Selection,
    found: Found,
}

/// The place of the rows of the last batch.
enum Found {
    Nowhere,
    /// These rows among those that the cursor's unit found.
    Unit(Range<usize>),
    /// In the cursor's chunk.
    Chunk,
}

/// The columns that rows of one layout need.
struct Prepared {
    layout: Arc<Layout>,
    pieces: Pieces,
    /// The asked columns of records, whose payloads lie in the chunk, and the columns that the keys and the test need.
    asked: Wanted,
    deciding: Wanted,
    /// The same for units, with the columns that decide about arrivals; and the union of both.
    of_unit: Wanted,
    deciding_of_unit: Wanted,
    read: Wanted,
    /// The keys and the test as numbers of pieces, where that is possible.
    numbers: Option<Vec<(usize, NumberRange)>>,
}

/// The rows that remain.
#[derive(Default)]
struct Selection {
    passing: Vec<bool>,
    rows: Vec<u32>,
}

impl SourceReader {
    /// Reads the rows that satisfy a test, with times in a range and addresses from `after` on.
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
        let tests = Tests::of(test, &ask.tests);
        SourceReader {
            of: Prepared::of(source.layout_at(after), source, &ask, &tests, arrived),
            source: Arc::clone(source),
            ask,
            tests,
            arrived,
            after,
            newest_first: false,
            records: Records::default(),
            selection: Selection::default(),
            found: Found::Nowhere,
        }
    }

    /// Reads the rows that satisfy a test, from the newest of a chunk to the oldest.
    pub fn newest_first(source: &Arc<Source>, ask: Ask, test: Test) -> SourceReader {
        SourceReader {
            newest_first: true,
            ..SourceReader::new(source, ask, test, TimeRange::ALL, Address::ZERO)
        }
    }

    /// Also omits the rows below an address. Nothing may have been read.
    pub fn begin_at(&mut self, after: Address) {
        assert!(
            !self.newest_first,
            "the rows of a unit are cut in their order"
        );
        self.after = after;
    }

    /// Prefetches the needed parts of isolated chunks.
    pub fn expect(&self, cursor: &ChunkCursor, chunks: impl Iterator<Item = ChunkNo>) {
        let wanted = UnitWanted::Columns {
            source: self.source.id,
            chunks: 1,
            columns: Some(&self.of.read),
            addresses: self.ask.addresses,
        };
        cursor.expect(chunks, wanted);
    }

    /// Reads the rows of the first of some wanted consecutive chunks, and of as many behind it as it can take together. Returns the end of these.
    ///
    /// # Errors
    /// Fails if a needed part does not verify, or retention removed it in the meantime.
    pub fn read(&mut self, cursor: &mut ChunkCursor, chunks: Range<ChunkNo>) -> Result<ChunkNo> {
        if let Some(end) = self.read_unit(cursor, chunks.clone())? {
            return Ok(end);
        }
        self.read_chunk(cursor, chunks.clone())?;
        Ok(ChunkNo(chunks.start.0 + 1))
    }

    /// Reads the first chunk, which is in no unit; the others are read next.
    ///
    /// # Errors
    /// As [`SourceReader::read`].
    pub fn read_chunk(&mut self, cursor: &mut ChunkCursor, chunks: Range<ChunkNo>) -> Result<()> {
        self.found = Found::Nowhere;
        cursor.load_of(chunks.start, chunks.end)?;
        cursor.find_runs(self.source.id)?;
        self.take_runs(cursor, cursor.runs())
    }

    /// Reads the records at some offsets in a chunk that is in no unit. Returns false if the offsets do not suffice. `span` is the arrival of the chunk's first
    /// and last record.
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

    /// Returns the rows that were read last.
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

    /// Reads rows directly from a unit. `None` means that the first chunk is in none, or that the unit cannot give the asked parts.
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
        if let Some(end) = self.pass_unit(cursor, &chunks)? {
            return Ok(Some(end));
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
        self.tests.rest(rows.count());
        if !range.is_empty() {
            self.found = Found::Unit(range);
        }
        Ok(Some(end))
    }

    /// Returns the end of the chunks, all of one layout, in which no row is wanted according to the zones of its fields; `None` if one may be.
    fn pass_unit(
        &self,
        cursor: &mut ChunkCursor,
        chunks: &Range<ChunkNo>,
    ) -> Result<Option<ChunkNo>> {
        let asks_of_fields = !self.ask.keys.is_empty() || self.tests.all.needs_fields();
        if !asks_of_fields {
            return Ok(None);
        }
        let may = |of_fields: &[Zone]| {
            let zones = Zones {
                layout: &self.of.layout,
                of_fields,
                unit: None,
            };
            let mut keys = self.ask.keys.iter();
            keys.all(|(field, keys)| zones.may_have(*field, keys)) && self.tests.all.may_pass(zones)
        };
        cursor.pass_unit(chunks.clone(), self.of.pieces.template(), may)
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
        // Reads the deciding columns first: if no row remains, nothing else is decoded.
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
            let selected = (self.selection).of(&batch, &self.ask.keys, &mut self.tests);
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

    /// Takes the source's records of some runs of the cursor's chunk.
    ///
    /// # Errors
    /// Fails if a record does not fit its source's fields.
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
        // Filtering by keys alone does not pay off if nothing else is read of the rows.
        let has_more = !self.ask.keys.is_empty() && !of.deciding.covers(&of.asked);
        let leaves_out = has_more || !matches!(self.tests.now(), Test::All);
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
                let selected = (self.selection).of(&batch, &self.ask.keys, &mut self.tests);
                selected.map_err(no_memory)?;
                let passing = self.selection.passing.as_slice();
                records.keep(|row| *at(passing, row));
            }
        }
        if records.count() == 0 {
            return Ok(());
        }
        self.tests.rest(records.count());
        (records.gather(template, &of.asked, chunk)).map_err(undecoded)?;
        if self.ask.addresses {
            records.find_addresses(base).map_err(no_memory)?;
        }
        self.found = Found::Chunk;
        Ok(())
    }

    /// Sums up the field whose keys are asked for over some chunks, and returns the end of these. `None` means that the rows must be read.
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
        if let Some(end) = self.pass_unit(cursor, &chunks)? {
            return Ok(Some((end, RangeTotals::NONE)));
        }
        let of = &self.of;
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

    /// Reports whether payloads or own times decide about rows.
    fn leaves_out(&self) -> bool {
        !self.ask.keys.is_empty() || !matches!(self.tests.now(), Test::All)
    }

    /// Switches to the layout at an address, and to the tests that are worth their time.
    fn enter(&mut self, base: Address) {
        let layout = self.source.layout_at(base);
        let other_tests = self.tests.turn();
        if other_tests || !Arc::ptr_eq(&self.of.layout, layout) {
            let (source, ask) = (&self.source, &self.ask);
            self.of = Prepared::of(layout, source, ask, &self.tests, self.arrived);
        }
    }
}

impl Prepared {
    fn of(
        layout: &Arc<Layout>,
        source: &Source,
        ask: &Ask,
        tests: &Tests,
        arrived: TimeRange,
    ) -> Prepared {
        let test = tests.now();
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
        let mut needs_nulls = false;
        let is_known = test.each_use(&mut |field, is_compared| match is_compared {
            true => fields.push(field),
            false => needs_nulls = true,
        });
        let mut deciding = pieces.wanted_columns(&fields, test.needs_times());
        if needs_nulls {
            pieces.want_nulls(&mut deciding);
        }
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

/// Returns the numbers of pieces that have these keys and satisfy a test; `None` if the test is more than keys, or if there are none.
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
    // The numbers do not show NULL, which no test accepts as a value.
    let by_test = test.field_keys()?.into_iter().map(|(field, keys)| {
        let is_number = layout.slot(field)?.null_bit.is_none();
        number(field, keys).filter(|_| is_number)
    });
    let all: Vec<_> = by_keys.chain(by_test).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

impl Selection {
    /// Selects the rows whose fields have the keys and that satisfy the tests.
    fn of(
        &mut self,
        batch: &Batch<'_>,
        keys: &[(usize, RangeSet<Key>)],
        tests: &mut Tests,
    ) -> Result<(), NoMemory> {
        let count = batch.count();
        self.passing.clear();
        memory::resize(&mut self.passing, count)?;
        self.passing.fill(true);
        for (field, keys) in keys {
            keep_keys(batch, *field, keys, &mut self.passing);
        }
        tests.now().keep(batch, &mut self.passing);
        self.rows.clear();
        memory::reserve(&mut self.rows, count)?;
        self.rows.extend(0..count as u32);
        let passing = self.passing.as_slice();
        keep(&mut self.rows, |nth, _| *at(passing, nth));
        tests.count(count, self.rows.len());
        Ok(())
    }
}
