//! The n records with the greatest, or the least, values of an index.
//!
//! The value of rank n is found as a quantile is, from bins and kept greatest values; then the chunks that may hold values as great are read,
//! which the same bins choose. Of records with that value itself the oldest are taken.

use std::cmp::Reverse;

use super::bucket_values::BinDetail;
use super::index_question::{IndexAsked, IndexQuestion};
use super::question_set::QuestionSet;
use super::rank_search::{RankSearch, WantedRank};
use crate::error::{Error, Result};
use crate::format::RECORD_HEADER_BYTES;
use crate::proven::at;
use crate::query::poll::Poll;
use crate::query::predicate::Predicate;
use crate::query::scan::chunk_cursor::Row;
use crate::query::scan::shared_scan::{Scan, ScanSpec};
use crate::schema::RangeSet;
use crate::types::{Address, Key, TimeRange, ValueRange};

/// Rows are sorted in memory, which is all that they may take.
const BYTES_MOST: usize = 256 << 20;

/// Which records are wanted.
#[derive(Copy, Clone, Debug)]
pub struct TopSpec {
    pub time: TimeRange,
    /// At most so many.
    pub rows: u64,
    /// The least values, not the greatest.
    pub least: bool,
    /// As for an aggregate.
    pub threads: usize,
}

/// A record, out of its chunk.
#[derive(Clone, Debug)]
pub struct TopRow {
    /// Which of the snapshots asked it is from.
    pub part: usize,
    pub key: Key,
    /// The address of `bytes`: that of the record's header.
    pub base: Address,
    pub bytes: Box<[u8]>,
    /// The record, in `bytes`.
    pub row: Row,
}

/// The records with the greatest values, the greatest first, or with the least, the least first; of equal values the oldest first, by snapshot.
///
/// # Errors
/// An unknown index, or one that only counts; indexes of several kinds of value; more rows than fit 256 MiB; damage, eviction,
/// [`crate::Error::Interrupted`].
pub fn top(asked: &[IndexAsked<'_>], spec: TopSpec, poll: &Poll<'_>) -> Result<Vec<TopRow>> {
    let questions = IndexQuestion::prepare(asked, ValueRange::ALL)?;
    let Some(edge) = edge(&questions, spec, poll)? else {
        return Ok(Vec::new());
    };
    let keys = match spec.least {
        true => ValueRange {
            min: Key::MIN,
            max: edge,
        },
        false => ValueRange {
            min: edge,
            max: Key::MAX,
        },
    };
    let mut found = Found {
        edge,
        rows: Vec::new(),
        bytes: 0,
        beyond: 0,
        most: spec.rows,
    };
    for (part, (question, asked)) in questions.iter().zip(asked).enumerate() {
        let IndexAsked {
            snapshot,
            source,
            index,
            filter,
        } = *asked;
        let definition = snapshot.index_of(source, index)?;
        let scan = Scan::new(
            snapshot,
            ScanSpec {
                source,
                after: Address::ZERO,
                exact: Predicate::and([
                    Predicate::times(RangeSet::from(spec.time)),
                    Predicate::keys(index, RangeSet::from(keys)),
                    filter.clone(),
                ]),
                prune: Predicate::All,
                index_filters: definition.filter().map(|_| index).into_iter().collect(),
            },
        )?;
        let mut reader = scan.reader();
        while let Some(chunk) = scan.next(poll)? {
            poll.check()?;
            let rows = reader.read(chunk)?;
            for row in rows.rows {
                let key = question.value.key(rows.layout, row.payload(rows.bytes));
                let key = key.expect("a scan by keys gives records that have one");
                found.add(part, key, rows.base, rows.bytes, *row)?;
            }
        }
        snapshot.logs().counters().absorb(scan.logs().counters());
    }
    Ok(found.sorted(spec.least))
}

/// The last value that is wanted; `None` where there is no value or none is wanted.
fn edge(questions: &[IndexQuestion], spec: TopSpec, poll: &Poll<'_>) -> Result<Option<Key>> {
    let asked = QuestionSet {
        questions,
        bucket: None,
        threads: spec.threads,
    };
    let buckets = asked.values(spec.time, BinDetail::Bins, poll)?;
    let Some(values) = buckets.first().filter(|values| values.totals.count > 0) else {
        return Ok(None);
    };
    let count = values.totals.count;
    let rank = match (spec.rows.min(count), spec.least) {
        (0, _) => return Ok(None),
        (rows, true) => rows,
        (rows, false) => count - rows + 1,
    };
    let mut search = RankSearch::new(&asked);
    let range = search.range_of(values, rank)?;
    if let Some(key) = range.single() {
        return Ok(Some(key));
    }
    search.want(WantedRank {
        time: spec.time,
        range,
        row: 0,
        column: 0,
    });
    Ok(search.settle(poll)?.pop().map(|found| found.key))
}

struct Found {
    edge: Key,
    rows: Vec<TopRow>,
    bytes: usize,
    /// Rows whose value is not the edge.
    beyond: u64,
    most: u64,
}

impl Found {
    fn add(&mut self, part: usize, key: Key, base: Address, chunk: &[u8], row: Row) -> Result<()> {
        if key != self.edge {
            self.beyond += 1;
        } else if self.rows.len() as u64 - self.beyond >= self.most - self.beyond.min(self.most) {
            // There are enough of these without it: later records of greater values take places from them, never give any.
            return Ok(());
        }
        let start = row.start as usize - RECORD_HEADER_BYTES;
        let end = row.start as usize + usize::from(row.length);
        self.bytes += end - start + size_of::<TopRow>();
        if self.bytes > BYTES_MOST {
            return Err(Error::Query(format!(
                "{} rows take more than the {} MiB that they are sorted in; ask for fewer",
                self.most,
                BYTES_MOST >> 20
            )));
        }
        self.rows.push(TopRow {
            part,
            key,
            base: base + start as u64,
            bytes: at(chunk, start..end).into(),
            row: Row {
                start: RECORD_HEADER_BYTES as u32,
                ..row
            },
        });
        Ok(())
    }

    fn sorted(self, least: bool) -> Vec<TopRow> {
        let mut rows = self.rows;
        // A stable sort: equal values stay in log order.
        match least {
            true => rows.sort_by_key(|row| row.key),
            false => rows.sort_by_key(|row| Reverse(row.key)),
        }
        rows.truncate(usize::try_from(self.most).unwrap_or(usize::MAX));
        rows
    }
}
