//! `loom_chunks`: the records of each source in each chunk, from the summaries, one chunk at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use loom_engine::query::{ChunkList, ChunkSource, Poll, Snapshot};
use loom_engine::schema::Source;
use loom_engine::{SourceId, Timestamp};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::{Column, columns};
use super::function::{Function, Plan};
use super::holders::Holders;
use super::parameters::{DIR, SOURCE};
use super::paths::Given;
use super::selection::snapshots;
use super::time::micros;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::{Cell, Pieces, TableRun};
use crate::exec::run::Run;

pub const FUNCTION: Function = Function {
    name: "loom_chunks",
    description: "The chunks of a Loom directory, and what each holds of each source.",
    columns: "`dir`, `source`, `chunk`, `addr`, `records`, `first_ts`, `last_ts`, `first_arrival`, `last_arrival`, `previous_chunk`",
    examples: &["FROM loom_chunks('telemetry.loom', source := 'requests')"],
    positional: &[DIR],
    named: &[SOURCE],
    bind: |arguments, ambient| Ok(Box::new(ChunksPlan::bind(arguments, ambient)?)),
};

struct ChunksPlan {
    given: Given,
    source: Option<String>,
    columns: Vec<Column>,
}

impl ChunksPlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<ChunksPlan> {
        let plan = ChunksPlan {
            given: arguments.directories(ambient)?,
            source: arguments.text("source")?.map(str::to_owned),
            columns: columns(&[
                ("dir", SqlType::Text),
                ("source", SqlType::Text),
                ("chunk", SqlType::U64),
                ("addr", SqlType::U64),
                ("records", SqlType::U64),
                ("first_ts", SqlType::TimestampTz),
                ("last_ts", SqlType::TimestampTz),
                ("first_arrival", SqlType::TimestampTz),
                ("last_arrival", SqlType::TimestampTz),
                ("previous_chunk", SqlType::U64),
            ]),
        };
        let snapshots = snapshots(&plan.given, None, ambient)?;
        if let Some(source) = &plan.source {
            Holders::find(snapshots, source, &plan.given)?;
        }
        Ok(plan)
    }
}

impl Plan for ChunksPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let snapshots = snapshots(&self.given, None, ambient)?;
        let listed = |dir: String, snapshot: Snapshot, source: Option<SourceId>| Listed {
            list: ChunkList::new(&snapshot, source),
            snapshot,
            dir,
            latest: None,
        };
        let directories = match &self.source {
            None => snapshots
                .into_iter()
                .map(|(dir, snapshot)| listed(dir, snapshot, None))
                .collect(),
            Some(source) => Holders::find(snapshots, source, &self.given)?
                .noted()
                .into_iter()
                .map(|holder| listed(holder.dir, holder.snapshot, Some(holder.source.id)))
                .collect(),
        };
        Ok(TableRun::of(ChunkPieces { directories }, projected))
    }
}

/// The rows of an execution, one chunk at a time.
struct ChunkPieces {
    /// The directories that are not listed yet; the first is in progress.
    directories: VecDeque<Listed>,
}

struct Listed {
    dir: String,
    snapshot: Snapshot,
    list: ChunkList,
    /// The source that was looked up last; most rows repeat it.
    latest: Option<Arc<Source>>,
}

impl Pieces for ChunkPieces {
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        while let Some(listed) = self.directories.front_mut() {
            if let Some(rows) = listed.list.next(poll)? {
                return Ok(Some(rows.iter().map(|row| listed.cells(row)).collect()));
            }
            self.directories.pop_front();
        }
        Ok(None)
    }
}

impl Listed {
    fn cells(&mut self, row: &ChunkSource) -> Vec<Cell> {
        let time = |time: Timestamp| Cell::Int(i128::from(micros(time.0)));
        vec![
            Cell::from(self.dir.as_str()),
            self.name(row.source),
            Cell::from(row.chunk.0),
            Cell::from(row.chunk.address(self.snapshot.chunk_bytes()).0),
            Cell::from(row.records),
            time(row.first_ts),
            time(row.last_ts),
            time(row.first_arrival),
            time(row.last_arrival),
            Cell::from(row.previous_chunk.map(|chunk| Cell::from(chunk.0))),
        ]
    }

    fn name(&mut self, id: SourceId) -> Cell {
        if self.latest.as_ref().is_none_or(|source| source.id != id) {
            self.latest = self.snapshot.catalog().source(id).cloned();
        }
        let name = self.latest.as_ref().map(|source| source.name.clone());
        Cell::from(name.map(Cell::Text))
    }
}
