//! A snapshot: the positions up to which a query reads, taken once (paper §4.5). Clones see the same records.

use std::sync::Arc;

use super::directory::Directory;
use super::losses::missing::missing_runs;
use super::poll::Poll;
use super::predicate::{Predicate, Test};
use super::scan::chunk_cursor::ChunkCursor;
use super::scan_counters::ScanStats;
use super::snapshot_logs::SnapshotLogs;
use super::value::Value;
use crate::error::{Error, Result};
use crate::log::{CATALOG_NAME, Tails};
use crate::schema::{Catalog, Index, Source};
use crate::types::{Address, IndexId, LogKind, SourceId};

/// The tails are loaded again at most this often while summaries lag behind the records.
const LOADS_MOST: u32 = 3;
/// A question is asked at most this often while retention removes what it reads.
const ASKED_MOST: u32 = 3;
/// This many chunks past the last summary are normal: the open one, and one whose summary is being written.
const LAG_CHUNKS: u64 = 2;

/// One instant of a directory: every record below its position, and none at or past it.
#[derive(Clone)]
pub struct Snapshot {
    directory: Arc<Directory>,
    catalog: Arc<Catalog>,
    logs: Arc<SnapshotLogs>,
}

impl Directory {
    /// Everything that is published now.
    ///
    /// # Errors
    /// Staging that a live writer uses and that cannot be read, a damaged catalog, failed reads.
    pub fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        let tails = self.tails(None)?;
        self.snapshot_of(tails, tails.tail.records)
    }

    /// The snapshot that had this position, without the records that are no longer retained.
    ///
    /// # Errors
    /// As [`Directory::snapshot`]; a position that is not published yet or no longer retained.
    pub fn snapshot_at(self: &Arc<Self>, position: u64) -> Result<Snapshot> {
        let position = Address(position);
        let tails = self.tails(Some(position))?;
        let tail = tails.tail.records;
        if position > tail {
            return Err(Error::Query(format!(
                "position {position} is past the published end {tail}; take one from loom_snapshot"
            )));
        }
        self.snapshot_of(tails, position)
    }

    /// Loads the tails, and loads them again if records had run far ahead of their summaries between the loads.
    fn tails(&self, position: Option<Address>) -> Result<Tails> {
        let mut tails = self.reader().tails()?;
        for _ in 1..LOADS_MOST {
            let lag = self.lag_chunks(&tails, position);
            if lag <= LAG_CHUNKS {
                break;
            }
            tails = self.reader().tails()?;
        }
        Ok(tails)
    }

    fn lag_chunks(&self, tails: &Tails, position: Option<Address>) -> u64 {
        let tail = tails.tail.records;
        let logs = self.logs(*tails, position.unwrap_or(tail).min(tail));
        logs.end_chunk().0 - logs.summarised_chunks().0
    }

    pub(super) fn snapshot_of(
        self: &Arc<Self>,
        mut tails: Tails,
        position: Address,
    ) -> Result<Snapshot> {
        // Read after the tails, so that it defines the sources of all published records. Sources whose records were given up since may be
        // missing.
        let catalog = self
            .catalog()
            .or_else(|error| self.reader().require_in_place().and(Err(error)))?;
        let forgotten_below = catalog.forgotten_below();
        tails.begin = self.reader().begins_described(&tails, forgotten_below)?;
        let begin = tails.begin.records;
        if position < begin {
            return Err(Error::Evicted {
                dir: self.path().to_owned(),
                address: position,
                begin,
            });
        }
        let is_empty = catalog.sources().next().is_none();
        let snapshot = Snapshot {
            directory: Arc::clone(self),
            catalog,
            logs: Arc::new(self.logs(tails, position)),
        };
        if is_empty && !is_all_gap(snapshot.logs())? {
            return Err(Error::Damaged {
                path: self.path().join(CATALOG_NAME),
                what: "it defines no source, but there are records; restore the file from a backup"
                    .to_owned(),
            });
        }
        Ok(snapshot)
    }
}

impl Snapshot {
    /// The end of the record log in this snapshot. The same position later gives the same records, while they are retained.
    pub fn position(&self) -> u64 {
        self.logs.position().0
    }

    /// The same instant without the records at and past an address, which must be a record's.
    pub fn up_to(&self, position: Address) -> Snapshot {
        Snapshot {
            logs: Arc::new(self.logs.up_to(position)),
            ..self.clone()
        }
    }

    /// Asks the snapshot. If retention removes records that `ask` reads, the snapshot loses them, and is asked again, at most twice.
    ///
    /// # Errors
    /// As `ask`; retention has removed all records up to its position.
    pub fn ask_retained<T>(&mut self, mut ask: impl FnMut(&Snapshot) -> Result<T>) -> Result<T> {
        for _ in 1..ASKED_MOST {
            match ask(self) {
                Err(Error::Evicted { .. }) => {
                    *self = self.directory.snapshot_at(self.position())?
                }
                answer => return answer,
            }
        }
        ask(self)
    }

    /// Whether a writer can have published this position: it is not inside a record.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    pub fn ends_between_records(&self) -> Result<bool> {
        let (logs, position) = (&self.logs, self.logs.position());
        let chunk = position.chunk(logs.chunk_bytes());
        if position == logs.tail(LogKind::Records) || position == chunk.address(logs.chunk_bytes())
        {
            return Ok(true);
        }
        let mut cursor = ChunkCursor::new(logs.counted_apart());
        cursor.load(chunk)?;
        Ok(position.0.is_multiple_of(8) && !cursor.cuts_a_record()?)
    }

    /// The lowest address that was retained when the snapshot was taken.
    pub fn begin(&self) -> Address {
        self.logs.begin(LogKind::Records)
    }

    pub fn chunk_bytes(&self) -> u32 {
        self.logs.chunk_bytes()
    }

    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The counts of this snapshot's operators together. Scans have counts of their own.
    pub fn stats(&self) -> ScanStats {
        self.logs.counters().stats()
    }

    /// # Errors
    /// No source has this name; the error lists the nearest names.
    pub fn source(&self, name: &str) -> Result<Arc<Source>> {
        match self.catalog.find(name) {
            Some(source) => Ok(Arc::clone(source)),
            None => Err(self.catalog.unknown_source(name)),
        }
    }

    /// # Errors
    /// No source has this id.
    pub fn source_by_id(&self, source: SourceId) -> Result<Arc<Source>> {
        match self.catalog.source(source) {
            Some(source) => Ok(Arc::clone(source)),
            None => Err(Error::Query(format!("there is no source with id {source}"))),
        }
    }

    /// # Errors
    /// No source has an index with this id.
    pub fn index(&self, index: IndexId) -> Result<Arc<Index>> {
        self.catalog
            .index(index)
            .cloned()
            .ok_or_else(|| Error::Query(format!("there is no index with id {index}")))
    }

    pub(super) fn index_of(&self, source: SourceId, index: IndexId) -> Result<Arc<Index>> {
        let index = self.index(index)?;
        if index.source == source {
            return Ok(index);
        }
        Err(Error::Query(format!(
            "index '{}' belongs to another source",
            index.name
        )))
    }

    /// The index of a source, with the means to compute its values.
    pub(super) fn value_of(&self, source: SourceId, index: IndexId) -> Result<Arc<Value>> {
        let index = self.index_of(source, index)?;
        let function = self.directory.function(index.id);
        if index.is_native() && function.is_none() {
            return Err(Error::Query(format!(
                "index '{}' is computed by a function of the program that defined it; give that function to the directory",
                index.name
            )));
        }
        Ok(Arc::new(Value::new(index, function)))
    }

    /// Prepares a predicate over the source.
    pub(super) fn test_of(&self, source: SourceId, predicate: &Predicate) -> Result<Test> {
        Test::prepare(predicate, &|index| self.value_of(source, index))
    }

    pub(super) fn logs(&self) -> &Arc<SnapshotLogs> {
        &self.logs
    }
}

/// Whether the log holds only a gap, as after a crash before the first source was defined.
fn is_all_gap(logs: &Arc<SnapshotLogs>) -> Result<bool> {
    if logs.chunks() == 0 {
        return Ok(true);
    }
    let missing = missing_runs(logs, &Poll::never())?;
    let lost = missing.iter().filter(|run| !run.damaged);
    Ok(lost.map(|run| run.chunks).sum::<u64>() == logs.chunks())
}
