//! Lists the chunks of the record log in order with their sources: from summaries, one chunk a step, and from the records of a chunk without a summary.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::chunk_cursor::ChunkCursor;
use crate::error::Result;
use crate::format::{Node, RawRecord};
use crate::query::forest::walk::{Order, Visitor, Walk};
use crate::query::poll::Poll;
use crate::query::snapshot::Snapshot;
use crate::schema::{Catalog, Layout};
use crate::types::{ChunkNo, SourceId, Timestamp};

/// The content of a chunk from one source.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ChunkSource {
    pub chunk: ChunkNo,
    pub source: SourceId,
    pub records: u64,
    /// Least and greatest `ts`.
    pub first_ts: Timestamp,
    pub last_ts: Timestamp,
    pub first_arrival: Timestamp,
    pub last_arrival: Timestamp,
    /// The latest earlier chunk that holds the source; without a summary, only retained chunks count.
    pub previous_chunk: Option<ChunkNo>,
}

/// A list that continues where it stopped.
pub struct ChunkList {
    catalog: Arc<Catalog>,
    listing: Listing,
    walk: Walk,
    cursor: ChunkCursor,
    /// The chunk in which each source was listed last.
    latest: HashMap<SourceId, ChunkNo>,
}

impl ChunkList {
    /// Lists one source, or all.
    pub fn new(snapshot: &Snapshot, source: Option<SourceId>) -> ChunkList {
        let logs = snapshot.logs();
        ChunkList {
            catalog: Arc::clone(snapshot.catalog()),
            listing: Listing { source, rows: None },
            walk: Walk::new(Arc::clone(logs), Order::OldestFirst),
            cursor: ChunkCursor::new(Arc::clone(logs)),
            latest: HashMap::new(),
        }
    }

    /// Returns the sources of the next chunk that holds a record, ascending; `None` after the last chunk.
    ///
    /// # Errors
    /// Damage, eviction, [`crate::Error::Interrupted`].
    pub fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<ChunkSource>>> {
        while let Some(chunk) = self.walk.next(&mut self.listing, poll)? {
            let rows = match self.listing.rows.take() {
                Some(rows) => rows,
                None => self.read(chunk)?,
            };
            for row in &rows {
                self.latest.insert(row.source, row.chunk);
            }
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
        }
        Ok(None)
    }

    /// Lists a chunk without a summary from its records.
    fn read(&mut self, chunk: ChunkNo) -> Result<Vec<ChunkSource>> {
        self.cursor.load(chunk)?;
        let mut sources: BTreeMap<SourceId, ChunkSource> = BTreeMap::new();
        let wanted = self.listing.source;
        let base = self.cursor.base();
        let mut layout: Option<(SourceId, &Layout)> = None;
        let _ = self.cursor.walk(|record| {
            if wanted.is_some_and(|wanted| wanted != record.source) {
                return ControlFlow::Continue(());
            }
            if layout.is_none_or(|(source, _)| source != record.source) {
                let source = self.catalog.source(record.source);
                layout = source.map(|source| (source.id, &**source.layout_at(base)));
            }
            let own_time = layout.and_then(|(_, layout)| layout.own_time(record.payload));
            let ts = own_time.unwrap_or(record.arrival);
            let previous = self.latest.get(&record.source);
            sources
                .entry(record.source)
                .or_insert_with(|| ChunkSource {
                    previous_chunk: previous.copied(),
                    ..first(chunk, &record, ts)
                })
                .add(&record, ts);
            ControlFlow::Continue(())
        })?;
        Ok(sources.into_values().collect())
    }
}

fn first(chunk: ChunkNo, record: &RawRecord<'_>, ts: Timestamp) -> ChunkSource {
    ChunkSource {
        chunk,
        source: record.source,
        records: 0,
        first_ts: ts,
        last_ts: ts,
        first_arrival: record.arrival,
        last_arrival: record.arrival,
        previous_chunk: None,
    }
}

impl ChunkSource {
    fn add(&mut self, record: &RawRecord<'_>, ts: Timestamp) {
        self.records += 1;
        self.first_ts = self.first_ts.min(ts);
        self.last_ts = self.last_ts.max(ts);
        self.last_arrival = record.arrival;
    }
}

/// Takes the rows of each summary.
struct Listing {
    source: Option<SourceId>,
    rows: Option<Vec<ChunkSource>>,
}

impl Visitor for Listing {
    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let wanted = node
            .sources()
            .filter(|stats| self.source.is_none_or(|source| source == stats.source));
        if node.level() > 0 {
            return Ok(wanted.fold(0, |mask, stats| mask | stats.child_mask));
        }
        let rows: Vec<ChunkSource> = wanted
            .map(|stats| ChunkSource {
                chunk: node.first_chunk(),
                source: stats.source,
                records: stats.records,
                first_ts: stats.first_ts,
                last_ts: stats.last_ts,
                first_arrival: stats.first_arrival,
                last_arrival: stats.last_arrival,
                previous_chunk: stats.previous_chunk,
            })
            .collect();
        let holds_any = u64::from(!rows.is_empty());
        self.rows = Some(rows);
        Ok(holds_any)
    }

    fn unsummarised(&mut self) {
        self.rows = None;
    }
}
