//! The sources of a narrow node of the chunk index, stored column by column. Each column uses as many bits as its widest number needs.
//!
//! A node with many sources is narrow: most sources have a record or two in a chunk, and a fixed entry would be longer than those records. Any number is found
//! without the ones before it. `Columns::prove` proves the places of the columns once; the accessors behind it cannot fail.

use super::bytes::{FormatError, invalid, pad8, u32_at, u64_at};
use super::columns::{PACKED_SLACK_BYTES, Packed, pack, width_of};
use super::summary::{ChildStats, NodeSummary};
use crate::proven::{at, at_mut};
use crate::types::{TimeRange, Timestamp};

/// A node with this many sources or more is narrow.
pub(super) const NARROW_SOURCES: usize = 32;
/// The table that describes the columns.
pub(super) const TABLE_BYTES: usize = COLUMNS * COLUMN_BYTES;
const COLUMN_BYTES: usize = 24;
const COLUMNS: usize = 16;
/// Columns with one number for each source. The columns behind them have one for each child of each source.
const OF_SOURCES: usize = 13;

/// The numbers of a source, in the order of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Numbers {
    pub source: u64,
    pub own_time: u64,
    pub records: u64,
    pub bytes: u64,
    pub first_arrival: u64,
    pub last_arrival: u64,
    pub first_ts: u64,
    pub last_ts: u64,
    /// Chunks between the node's first one and the chunk that held the source last; 0: never.
    pub chunks_back: u64,
    pub first: u64,
    pub last: u64,
    pub child_mask: u64,
    /// The number of children of all sources before it.
    pub children_before: u64,
}

impl Numbers {
    /// Returns the stored numbers: an end is stored as its distance from the beginning.
    fn columns(&self) -> [u64; OF_SOURCES] {
        [
            self.source,
            self.own_time,
            self.records,
            self.bytes,
            self.first_arrival,
            self.last_arrival.wrapping_sub(self.first_arrival),
            self.first_ts,
            self.last_ts.wrapping_sub(self.first_ts),
            self.chunks_back,
            self.first,
            self.last.wrapping_sub(self.first),
            self.child_mask,
            self.children_before,
        ]
    }

    /// Reads source `nth` in each column. The columns are listed one by one, because `map` over the array would copy and call for each.
    #[inline]
    fn of_columns(columns: &[Column<'_>; OF_SOURCES], nth: usize) -> Numbers {
        let [
            source,
            own_time,
            records,
            bytes,
            first_arrival,
            arrivals,
            first_ts,
            times,
            chunks_back,
            first,
            span,
            child_mask,
            children_before,
        ] = columns;
        let first_arrival = first_arrival.get(nth);
        let first_ts = first_ts.get(nth);
        let first = first.get(nth);
        Numbers {
            source: source.get(nth),
            own_time: own_time.get(nth),
            records: records.get(nth),
            bytes: bytes.get(nth),
            first_arrival,
            last_arrival: first_arrival.wrapping_add(arrivals.get(nth)),
            first_ts,
            last_ts: first_ts.wrapping_add(times.get(nth)),
            chunks_back: chunks_back.get(nth),
            first,
            last: first.wrapping_add(span.get(nth)),
            child_mask: child_mask.get(nth),
            children_before: children_before.get(nth),
        }
    }
}

/// A column: each number is `least` plus a multiple of `step`.
#[derive(Debug, Clone, Copy)]
struct Column<'a> {
    least: u64,
    step: u64,
    packed: Packed<'a>,
}

impl<'a> Column<'a> {
    /// Reads the column of `count` numbers in `node` that `table` describes.
    fn of(node: &'a [u8], table: &[u8], count: usize) -> Result<Column<'a>, FormatError> {
        let (start, width) = (u32_at(table, 16), u32_at(table, 20));
        let (Some(bytes), Ok(width)) = (node.get(start as usize..), u8::try_from(width)) else {
            return invalid("the place of a column of a node", start.into());
        };
        let (packed, _) = Packed::split(bytes, count, width)?;
        Ok(Column {
            least: u64_at(table, 0),
            step: u64_at(table, 8),
            packed,
        })
    }

    #[inline]
    fn get(&self, nth: usize) -> u64 {
        let steps = self.packed.get(nth);
        self.least.wrapping_add(self.step.wrapping_mul(steps))
    }

    /// Returns signed bounds of the numbers; `None` where one may have wrapped.
    fn bounds(&self) -> Option<(i64, i64)> {
        let least = self.least as i64;
        let steps = self.step.checked_mul(self.packed.greatest())?;
        Some((least, least.checked_add_unsigned(steps)?))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Columns<'a> {
    of_sources: [Column<'a>; OF_SOURCES],
    sources: usize,
    node: &'a [u8],
    /// The table that describes the columns.
    table: &'a [u8],
}

impl<'a> Columns<'a> {
    /// Reads the columns of a node with `sources` sources, whose table begins at `table_at` and is complete.
    pub fn of(node: &'a [u8], table_at: usize, sources: usize) -> Result<Columns<'a>, FormatError> {
        let table = at(node, table_at..table_at + TABLE_BYTES);
        let column = |nth: usize| Column::of(node, at(table, nth * COLUMN_BYTES..), sources);
        let mut of_sources = [column(0)?; OF_SOURCES];
        for (nth, place) in of_sources.iter_mut().enumerate() {
            *place = column(nth)?;
        }
        Ok(Columns {
            of_sources,
            sources,
            node,
            table,
        })
    }

    /// Reads the columns of a proven node.
    pub fn proven(node: &'a [u8], table_at: usize, sources: usize) -> Columns<'a> {
        Columns::of(node, table_at, sources).expect("the columns of a node were proven")
    }

    /// Proves the facts that the accessors rely on.
    pub fn prove(&self) -> Result<(), FormatError> {
        let mut children = 0;
        for nth in 0..self.sources {
            let numbers = self.numbers(nth);
            if numbers.children_before != children {
                return invalid("the children before a source", numbers.children_before);
            }
            children += u64::from(numbers.child_mask.count_ones());
            if u16::try_from(numbers.source).is_err() {
                return invalid("a source of a node", numbers.source);
            }
        }
        ChildColumns::of(self.node, self.table, children as usize)?;
        Ok(())
    }

    /// Returns a range that holds the `ts` of all sources, from the widths of the columns alone; `None` where their sum overflows or an end may precede its
    /// beginning.
    pub fn times(&self) -> Option<TimeRange> {
        let [.., first_ts, times, _, _, _, _, _] = &self.of_sources;
        let (first, greatest_first) = first_ts.bounds()?;
        let (least_span, span) = times.bounds()?;
        let last = greatest_first.checked_add(span)?;
        (least_span >= 0).then_some(TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        })
    }

    pub fn source(&self, nth: usize) -> u64 {
        let [source, ..] = &self.of_sources;
        source.get(nth)
    }

    pub fn numbers(&self, nth: usize) -> Numbers {
        Numbers::of_columns(&self.of_sources, nth)
    }

    pub fn children(&self, numbers: &Numbers) -> Children<'a> {
        Children {
            node: self.node,
            table: self.table,
            first: numbers.children_before as usize,
            first_ts: numbers.first_ts,
        }
    }
}

/// The columns of a narrow node about the children of one source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Children<'a> {
    node: &'a [u8],
    table: &'a [u8],
    /// The place of the first child in the columns.
    first: usize,
    first_ts: u64,
}

impl<'a> Children<'a> {
    /// Returns records, least and greatest `ts` of each of the source's `count` children.
    pub fn columns(self, count: usize) -> impl Fn(usize) -> (u64, Timestamp, Timestamp) + use<'a> {
        let columns = ChildColumns::of(self.node, self.table, self.first + count);
        let columns = columns.expect("the columns of a node were proven");
        move |nth| {
            let nth = self.first + nth;
            let first = self.first_ts.wrapping_add(columns.first.get(nth));
            let last = first.wrapping_add(columns.span.get(nth));
            (
                columns.records.get(nth),
                Timestamp(first as i64),
                Timestamp(last as i64),
            )
        }
    }
}

struct ChildColumns<'a> {
    records: Column<'a>,
    first: Column<'a>,
    span: Column<'a>,
}

impl<'a> ChildColumns<'a> {
    fn of(node: &'a [u8], table: &[u8], count: usize) -> Result<ChildColumns<'a>, FormatError> {
        let column = |nth: usize| Column::of(node, at(table, nth * COLUMN_BYTES..), count);
        Ok(ChildColumns {
            records: column(OF_SOURCES)?,
            first: column(OF_SOURCES + 1)?,
            span: column(OF_SOURCES + 2)?,
        })
    }
}

/// Appends the columns of a node's sources and describes them in the table at `table_at` of `out`.
pub(super) fn put_columns(node: &NodeSummary, table_at: usize, out: &mut Vec<u8>) {
    let mut children_before = 0;
    let numbers = node.sources.iter().map(|source| {
        let back = source.previous_chunk;
        let numbers = Numbers {
            source: source.source.0.into(),
            own_time: source.own_time.into(),
            records: source.records,
            bytes: source.bytes,
            first_arrival: source.first_arrival.0 as u64,
            last_arrival: source.last_arrival.0 as u64,
            first_ts: source.first_ts.0 as u64,
            last_ts: source.last_ts.0 as u64,
            chunks_back: back.map_or(0, |chunk| node.first_chunk.0.wrapping_sub(chunk.0)),
            first: source.first.into(),
            last: source.last.into(),
            child_mask: source.child_mask,
            children_before,
        };
        children_before += source.children.len() as u64;
        numbers.columns()
    });
    let rows: Vec<[u64; OF_SOURCES]> = numbers.collect();
    let mut numbers: Vec<u64> = Vec::with_capacity(rows.len().max(children_before as usize));
    for nth in 0..OF_SOURCES {
        numbers.clear();
        numbers.extend(rows.iter().map(|row| *at(row, nth)));
        put_column(&mut numbers, table_at + nth * COLUMN_BYTES, out);
    }
    let of_children: [fn(Timestamp, &ChildStats) -> u64; COLUMNS - OF_SOURCES] = [
        |_, child| child.records,
        |first, child| child.first_ts.0.wrapping_sub(first.0) as u64,
        |_, child| child.last_ts.0.wrapping_sub(child.first_ts.0) as u64,
    ];
    for (nth, number) in (OF_SOURCES..).zip(of_children) {
        numbers.clear();
        for source in node.sources.iter() {
            let children = source.children.iter();
            numbers.extend(children.map(|child| number(source.first_ts, child)));
        }
        put_column(&mut numbers, table_at + nth * COLUMN_BYTES, out);
    }
    out.extend_from_slice(&[0; PACKED_SLACK_BYTES]);
    pad8(out);
}

fn put_column(numbers: &mut [u64], table_at: usize, out: &mut Vec<u8>) {
    let least = numbers.iter().map(|number| *number as i64).min();
    let least = least.unwrap_or(0) as u64;
    let mut greatest = 0;
    for number in numbers.iter_mut() {
        *number = number.wrapping_sub(least);
        greatest = greatest.max(*number);
    }
    let step = step_of(numbers);
    if step > 1 {
        numbers.iter_mut().for_each(|number| *number /= step);
    }
    let width = width_of(greatest / step);
    let start = out.len();
    pack(numbers, width, out);
    let place = u64::from(start as u32) | u64::from(width) << 32;
    let table = at_mut(out, table_at..table_at + COLUMN_BYTES);
    for (word, number) in table.chunks_exact_mut(8).zip([least, step, place]) {
        word.copy_from_slice(&number.to_le_bytes());
    }
}

/// Returns the greatest common divisor of the numbers; 1 where all are 0.
fn step_of(numbers: &[u64]) -> u64 {
    let mut step = 0;
    for &number in numbers {
        if step == 0 || !number.is_multiple_of(step) {
            let mut rest = number;
            while rest != 0 {
                (step, rest) = (rest, step % rest);
            }
        }
        if step == 1 {
            break;
        }
    }
    step.max(1)
}
