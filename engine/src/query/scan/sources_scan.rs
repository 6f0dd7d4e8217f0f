//! A scan of several sources of one log at once: one walk that reads each chunk or unit once for all wanted sources.
//!
//! Sources that report in turns, such as the groups of a thousand targets, share every chunk: one scan after the other would read all of it for each.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ask::Ask;
use super::batch::Batch;
use super::chunk_cursor::ChunkCursor;
use super::source_reader::SourceReader;
use crate::error::Result;
use crate::format::{Node, Run, UNIT_CHUNKS};
use crate::proven::at_mut;
use crate::query::forest::mask::NodeView;
use crate::query::forest::walk::{Order, Visitor, Walk};
use crate::query::poll::Poll;
use crate::query::predicate::{Predicate, Test};
use crate::query::scan_counters::ScanStats;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{Source, TimeKind};
use crate::types::{Address, ChunkNo, SourceId, TimeRange};

const NOWHERE: u32 = u32::MAX;

/// One scan of some sources over one snapshot.
pub struct SourcesScan {
    sources: Vec<(Arc<Source>, Vec<usize>)>,
    /// The place of each source among `sources`, by its id; [`NOWHERE`] for the others.
    places: Vec<u32>,
    logs: Arc<SnapshotLogs>,
    times: TimeRange,
    test: Test,
    arrivals: TimeRange,
    turn: Mutex<Turn>,
}

struct Turn {
    walk: Walk,
    /// The first chunk of the next claim, which was met at the end of the last one.
    next: Option<ChunkNo>,
    /// Claims that were found but not handed out.
    ahead: VecDeque<UnitChunks>,
}

/// At least one chunk, usually all of one unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UnitChunks {
    pub first: ChunkNo,
    /// A bit for each of these chunks, counted from the first.
    mask: u64,
}

impl UnitChunks {
    pub fn count(&self) -> u64 {
        self.mask.count_ones().into()
    }

    fn end(&self) -> ChunkNo {
        ChunkNo(self.first.0 + u64::from(u64::BITS - self.mask.leading_zeros()))
    }

    fn contains(&self, chunk: ChunkNo) -> bool {
        let nth = chunk.0.wrapping_sub(self.first.0);
        nth < u64::BITS.into() && self.mask >> nth & 1 == 1
    }

    fn iter(self) -> impl Iterator<Item = ChunkNo> {
        let all = self.first.0..self.end().0;
        all.map(ChunkNo).filter(move |chunk| self.contains(*chunk))
    }

    /// Returns the end of the consecutive chunks from a chunk on.
    fn row_end(&self, chunk: ChunkNo) -> ChunkNo {
        let follow = self.mask >> (chunk.0 - self.first.0);
        ChunkNo(chunk.0 + u64::from(follow.trailing_ones()))
    }
}

/// The work ahead of a scan.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Ahead {
    pub chunks: u64,
    /// Chunks that are not in segments yet, where other sources' rows are read too.
    pub staged: u64,
    /// There is more.
    pub more: bool,
}

impl Visitor for &SourcesScan {
    fn arrivals(&self) -> TimeRange {
        self.arrivals
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        if node
            .times()
            .is_some_and(|times| !times.overlaps(self.times))
        {
            return Ok(0);
        }
        let mut mask = 0;
        let mut look = |stats| {
            let view = NodeView { node: *node, stats };
            mask |= self.test.masks(&view).may;
        };
        if !self.has_many() {
            let few = self.sources.iter();
            few.filter_map(|(source, _)| node.source(source.id))
                .for_each(look);
        } else {
            let all = node.sources();
            all.filter(|stats| self.place(stats.source).is_some())
                .for_each(&mut look);
        }
        Ok(mask)
    }

    fn opens_summaries(&mut self) -> bool {
        false
    }
}

impl SourcesScan {
    /// Begins a scan of these fields of these sources. It counts its work apart from other queries of the snapshot. Rows outside of `times` may be omitted.
    ///
    /// # Errors
    /// An unknown source.
    ///
    /// # Panics
    /// Panics if a source is wanted twice.
    pub fn new(
        snapshot: &Snapshot,
        wanted: impl IntoIterator<Item = (SourceId, Vec<usize>)>,
        times: TimeRange,
    ) -> Result<Arc<SourcesScan>> {
        let sources = wanted.into_iter();
        let sources = sources.map(|(id, fields)| Ok((snapshot.source_by_id(id)?, fields)));
        let sources = sources.collect::<Result<Vec<_>>>()?;
        let has_own_time = sources
            .iter()
            .any(|(source, _)| source.time == TimeKind::Own);
        let logs = snapshot.logs().counted_apart();
        let walk = Walk::new(Arc::clone(&logs), Order::OldestFirst);
        let greatest = sources.iter().map(|(source, _)| source.id.0).max();
        let mut places = vec![NOWHERE; usize::from(greatest.unwrap_or(0)) + 1];
        for (place, (source, _)) in (0..).zip(&sources) {
            let of = at_mut(&mut places, usize::from(source.id.0));
            assert_eq!(*of, NOWHERE, "source {} is wanted twice", source.id.0);
            *of = place;
        }
        Ok(Arc::new(SourcesScan {
            places,
            sources,
            logs,
            times,
            test: Test::prepare(&Predicate::time(times), &|_| {
                unreachable!("times are of no index")
            })?,
            arrivals: match has_own_time {
                true => TimeRange::ALL,
                false => times,
            },
            turn: Mutex::new(Turn {
                walk,
                next: None,
                ahead: VecDeque::new(),
            }),
        }))
    }

    fn has_many(&self) -> bool {
        self.sources.len() > self.logs.tuning().sources_few
    }

    /// Returns the place of a source among the scan's.
    fn place(&self, source: SourceId) -> Option<usize> {
        let place = self.places.get(usize::from(source.0))?;
        (*place != NOWHERE).then_some(*place as usize)
    }

    /// Returns the next chunks of one unit that may hold rows, ascending. Each is handed out once, to any thread. Returns none if no chunk remains.
    ///
    /// # Errors
    /// Damage in the index logs, and [`crate::Error::Interrupted`].
    pub fn next(&self, poll: &Poll<'_>) -> Result<Option<UnitChunks>> {
        let mut turn = self.turn();
        match turn.ahead.pop_front() {
            Some(found) => Ok(Some(found)),
            None => self.find(&mut turn, poll),
        }
    }

    /// Finds the first chunks to read, up to about `chunks_most`, before they are asked for.
    ///
    /// # Errors
    /// As [`SourcesScan::next`].
    pub fn look_ahead(&self, chunks_most: u64, poll: &Poll<'_>) -> Result<Ahead> {
        let mut turn = self.turn();
        let mut ahead = Ahead::default();
        while ahead.chunks < chunks_most {
            let Some(found) = self.find(&mut turn, poll)? else {
                return Ok(ahead);
            };
            let address = found.first.address(self.logs.chunk_bytes());
            ahead.chunks += found.count();
            ahead.staged += found.count() * u64::from(self.logs.is_staged(address));
            turn.ahead.push_back(found);
        }
        Ok(Ahead {
            more: true,
            ..ahead
        })
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, turn: &mut Turn, poll: &Poll<'_>) -> Result<Option<UnitChunks>> {
        let Turn { walk, next, .. } = turn;
        let first = match next.take() {
            Some(first) => first,
            None => match walk.next(&mut &*self, poll)? {
                Some(first) => first,
                None => return Ok(None),
            },
        };
        let mut found = UnitChunks { first, mask: 1 };
        while let Some(chunk) = walk.next(&mut &*self, poll)? {
            if chunk.0 / UNIT_CHUNKS != first.0 / UNIT_CHUNKS {
                *next = Some(chunk);
                break;
            }
            found.mask |= 1 << (chunk.0 - first.0);
        }
        Ok(Some(found))
    }

    pub fn stats(&self) -> ScanStats {
        self.logs.counters().stats()
    }

    /// Returns the fraction of the log behind the scan, from 0 to 1.
    pub fn progress(&self) -> f64 {
        self.stats().progress()
    }

    /// Creates a reader for one thread.
    pub fn reader(self: &Arc<Self>) -> SourcesReader {
        let logs = Arc::clone(&self.logs);
        let of_source = |(source, fields): &(Arc<Source>, Vec<usize>)| {
            let ask = Ask {
                fields: fields.clone(),
                times: true,
                ..Ask::default()
            };
            OneOfMany {
                rows: SourceReader::new(source, ask, Test::All, TimeRange::ALL, Address::ZERO),
                taken_to: ChunkNo(0),
                runs: Vec::new(),
            }
        };
        SourcesReader {
            cursor: match self.has_many() {
                true => ChunkCursor::of_many_sources(logs),
                false => ChunkCursor::new(logs),
            },
            of: self.sources.iter().map(of_source).collect(),
            scan: Arc::clone(self),
        }
    }
}

/// Reads the chunks of a scan on one thread.
pub struct SourcesReader {
    scan: Arc<SourcesScan>,
    cursor: ChunkCursor,
    of: Vec<OneOfMany>,
}

struct OneOfMany {
    rows: SourceReader,
    /// Its rows were taken from units up to this chunk.
    taken_to: ChunkNo,
    /// Its records in the loaded chunk.
    runs: Vec<Run>,
}

impl SourcesReader {
    /// Passes the rows of chunks from [`SourcesScan::next`] to `each`, with the place of their source in the scan. The rows of one source come in log order.
    ///
    /// # Errors
    /// A chunk that does not verify, or that retention removed in the meantime; and errors of `each`.
    pub fn read(
        &mut self,
        chunks: UnitChunks,
        mut each: impl FnMut(usize, Batch<'_>),
    ) -> Result<()> {
        // The chunks between them have no wanted rows.
        let all = chunks.first..chunks.end();
        let SourcesReader { scan, cursor, of } = self;
        for (place, source) in of.iter_mut().enumerate() {
            source.taken_to = all.start;
            while source.taken_to < all.end
                && let Some(end) = (source.rows).read_unit(cursor, source.taken_to..all.end)?
            {
                let batch = source.rows.batch(cursor);
                if batch.count() > 0 {
                    each(place, batch);
                }
                source.taken_to = end;
            }
        }
        for chunk in chunks.iter() {
            if of.iter().all(|source| source.taken_to > chunk) {
                continue;
            }
            cursor.load_of(chunk, chunks.row_end(chunk))?;
            of.iter_mut().for_each(|source| source.runs.clear());
            cursor.walk_runs(|run| {
                let source = scan.place(run.source).and_then(|place| of.get_mut(place));
                if let Some(source) = source.filter(|source| source.taken_to <= chunk) {
                    source.runs.push(run);
                }
            })?;
            let with_runs = of.iter_mut().enumerate();
            for (place, source) in with_runs.filter(|(_, source)| !source.runs.is_empty()) {
                source.rows.take_runs(cursor, &source.runs)?;
                let batch = source.rows.batch(cursor);
                if batch.count() > 0 {
                    each(place, batch);
                }
            }
        }
        Ok(())
    }
}
