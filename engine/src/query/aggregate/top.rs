//! The n records with the greatest, or the least, values of an index.
//!
//! The value of rank n is found like a quantile, from bins and kept greatest values. Then the values of the chunks that may hold values as
//! great are read, and at last the n records themselves. Of the records with exactly that value, the oldest are taken.

use std::cmp::Reverse;
use std::sync::Arc;

use super::bucket_values::BinDetail;
use super::index_question::{IndexAsked, IndexQuestion};
use super::question_set::QuestionSet;
use super::rank_search::{RankSearch, WantedRank};
use crate::error::{Error, Result};
use crate::proven::at;
use crate::query::forest::cached_nodes::contradiction;
use crate::query::poll::Poll;
use crate::query::predicate::Predicate;
use crate::query::scan::ask::Ask;
use crate::query::scan::batch::PayloadRoom;
use crate::query::scan::chunk_reader::ChunkReader;
use crate::query::scan::shared_scan::{Scan, ScanSpec};
use crate::query::value::Keys;
use crate::schema::RangeSet;
use crate::types::{Address, Key, TimeRange, Timestamp, ValueRange};

/// The most memory that the rows may take, because they are sorted in memory.
const BYTES_MOST: usize = 256 << 20;
/// The least number of chunks that are read at a time.
const CLAIM_CHUNKS: usize = 48;

/// The wanted records.
#[derive(Copy, Clone, Debug)]
pub struct TopSpec {
    pub time: TimeRange,
    /// The most rows to return.
    pub rows: u64,
    /// Return the least values instead of the greatest.
    pub least: bool,
    /// The same as for an aggregate.
    pub threads: usize,
}

/// A copy of a record.
#[derive(Clone, Debug)]
pub struct TopRow {
    /// The number of its snapshot among those asked.
    pub part: usize,
    pub key: Key,
    pub address: Address,
    /// The source's own time if it has one, else arrival.
    pub ts: Timestamp,
    pub payload: Box<[u8]>,
}

/// The records with the greatest values, the greatest first, or those with the least, the least first. Records with equal values come in
/// order of snapshot and age, oldest first.
///
/// # Errors
/// An unknown index, or one that only counts; indexes of several kinds of value; more rows than 256 MiB hold; damage; eviction;
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
        records: Vec::new(),
        beyond: 0,
        most: spec.rows,
    };
    let mut scans = Vec::with_capacity(asked.len());
    for (part, (question, asked)) in questions.iter().zip(asked).enumerate() {
        let scan = scan_of(asked, spec.time, keys)?;
        found.read(part, question, &scan, poll)?;
        scans.push(scan);
    }
    let rows = rows(&scans, &found.sorted(spec.least), poll)?;
    for (asked, scan) in asked.iter().zip(&scans) {
        let counters = asked.snapshot.logs().counters();
        counters.absorb(scan.logs().counters());
    }
    Ok(rows)
}

/// A scan of the records that may be wanted.
fn scan_of(asked: &IndexAsked<'_>, time: TimeRange, keys: ValueRange) -> Result<Arc<Scan>> {
    let IndexAsked {
        snapshot,
        source,
        index,
        filter,
    } = *asked;
    let definition = snapshot.index_of(source, index)?;
    Scan::new(
        snapshot,
        ScanSpec {
            source,
            after: Address::ZERO,
            exact: Predicate::and([
                Predicate::times(RangeSet::from(time)),
                Predicate::keys(index, RangeSet::from(keys)),
                filter.clone(),
            ]),
            prune: Predicate::All,
            index_filters: definition.filter().map(|_| index).into_iter().collect(),
        },
    )
}

/// The last value that is wanted; `None` if there is no value or none is wanted.
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

/// A record that may be wanted.
struct Candidate {
    part: usize,
    key: Key,
    address: Address,
}

struct Found {
    edge: Key,
    records: Vec<Candidate>,
    /// The number of records with a value other than the edge.
    beyond: u64,
    most: u64,
}

impl Found {
    /// Finds the candidates of one snapshot. It reads only the columns that decide.
    fn read(
        &mut self,
        part: usize,
        question: &IndexQuestion,
        scan: &Arc<Scan>,
        poll: &Poll<'_>,
    ) -> Result<()> {
        let value = &question.value;
        let mut reader = scan.reader(Ask {
            addresses: true,
            ..value.ask()
        });
        let (mut chunks, mut found) = (Vec::new(), Keys::default());
        loop {
            chunks.clear();
            scan.claim(CLAIM_CHUNKS, poll, |chunk| chunks.push(chunk))?;
            if chunks.is_empty() {
                return Ok(());
            }
            reader.take(chunks.iter().copied(), poll)?;
            while reader.read_next()? {
                poll.check()?;
                let batch = reader.batch();
                value.keys(&batch, &mut found);
                for (row, key) in found.by_row() {
                    let address = *at(batch.addresses(), row);
                    self.add(part, key, Address(address))?;
                }
            }
        }
    }

    fn add(&mut self, part: usize, key: Key, address: Address) -> Result<()> {
        if key != self.edge {
            self.beyond += 1;
        } else if self.records.len() as u64 - self.beyond >= self.most - self.beyond.min(self.most)
        {
            // There are enough records with this value already. Later records with greater values can only take places from them.
            return Ok(());
        }
        require_room(self.records.len(), 0)?;
        self.records.push(Candidate { part, key, address });
        Ok(())
    }

    fn sorted(self, least: bool) -> Vec<Candidate> {
        let mut records = self.records;
        // The sort is stable, so equal values stay in log order.
        match least {
            true => records.sort_by_key(|record| record.key),
            false => records.sort_by_key(|record| Reverse(record.key)),
        }
        records.truncate(usize::try_from(self.most).unwrap_or(usize::MAX));
        records
    }
}

/// Reads these records and returns them in the same order.
fn rows(scans: &[Arc<Scan>], records: &[Candidate], poll: &Poll<'_>) -> Result<Vec<TopRow>> {
    let mut in_log_order: Vec<(usize, &Candidate)> = records.iter().enumerate().collect();
    in_log_order.sort_unstable_by_key(|(_, record)| (record.part, record.address));
    let mut found = Vec::with_capacity(records.len());
    let (mut bytes, mut room) = (0, PayloadRoom::default());
    let chunk_of = |record: &Candidate| {
        let chunk_bytes = at(scans, record.part).logs().chunk_bytes();
        (record.part, record.address.chunk(chunk_bytes))
    };
    let mut reader: Option<(usize, ChunkReader)> = None;
    for of_chunk in in_log_order.chunk_by(|(_, a), (_, b)| chunk_of(a) == chunk_of(b)) {
        poll.check()?;
        let Some((_, first)) = of_chunk.first() else {
            continue;
        };
        let (part, chunk) = chunk_of(first);
        let (_, reader) = match reader.take().filter(|(of, _)| *of == part) {
            Some(kept) => reader.insert(kept),
            None => reader.insert((part, at(scans, part).reader(Ask::all()))),
        };
        let batch = reader.read(chunk)?;
        for (place, record) in of_chunk {
            let row = batch.addresses().binary_search(&record.address.0);
            let row = row.map_err(|_| {
                let what =
                    "a record with a great value is not among those that its chunk's summary names";
                contradiction(at(scans, part).logs(), what)
            })?;
            let mut read = batch.part(row..row + 1).records(&mut room);
            let read = read.next().expect("a part of one row has one");
            bytes += read.payload.len();
            require_room(records.len(), bytes)?;
            let row = TopRow {
                part,
                key: record.key,
                address: read.address,
                ts: read.ts,
                payload: read.payload.into(),
            };
            found.push((*place, row));
        }
    }
    found.sort_unstable_by_key(|(place, _)| *place);
    Ok(found.into_iter().map(|(_, row)| row).collect())
}

fn require_room(rows: usize, bytes: usize) -> Result<()> {
    if bytes + rows * size_of::<TopRow>() <= BYTES_MOST {
        return Ok(());
    }
    Err(Error::Query(format!(
        "{rows} rows take more than the {} MiB that they are sorted in; ask for fewer",
        BYTES_MOST >> 20
    )))
}
