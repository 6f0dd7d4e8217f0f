//! The small tables about a directory: its sources, indexes, position, losses and state, and what the latest scans read.

use std::path::PathBuf;
use std::sync::Arc;

use loom_engine::query::{Cut, Directory, Loss, Poll, Snapshot, SourceTotals, Status};
use loom_engine::schema::{BinsDef, FieldDef, Index, Source};
use loom_engine::{PerLog, Timestamp};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::Column;
use super::datum::TIMESTAMP_INFINITY;
use super::directory;
use super::paths::Given;
use super::pins;
use super::stats;
use super::time::micros;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::Cell;

type Rows = Vec<Vec<Cell>>;

/// A table about each of the directories, built for each execution.
pub struct DirectoryTable {
    given: Given,
    rows: TableRows,
}

/// How the rows are found.
enum TableRows {
    /// Of each directory by itself.
    Each(fn(&About<'_>) -> Result<Rows>),
    /// A cut of all directories.
    Cut,
}

/// One directory, and how it is called in the rows.
struct About<'a> {
    dir: &'a str,
    directory: &'a Arc<Directory>,
    snapshot: &'a Snapshot,
    poll: &'a Poll<'a>,
    /// The extension file that was loaded.
    file: &'static str,
}

impl DirectoryTable {
    fn bind(
        arguments: &Arguments,
        ambient: &Ambient<'_>,
        rows: TableRows,
    ) -> Result<DirectoryTable> {
        let given = arguments.directories(ambient)?;
        for path in given.paths(ambient)? {
            directory::open(&path)?;
        }
        Ok(DirectoryTable { given, rows })
    }

    pub fn sources(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<DirectoryTable> {
        DirectoryTable::bind(
            arguments,
            ambient,
            TableRows::Each(|about| {
                let totals = about.snapshot.totals()?;
                let sources = about.snapshot.catalog().sources();
                let held = |source: &Source| totals.get(&source.id).copied().unwrap_or_default();
                sources
                    .map(|source| about.source(source, &held(source)))
                    .collect()
            }),
        )
    }

    pub fn indexes(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<DirectoryTable> {
        DirectoryTable::bind(
            arguments,
            ambient,
            TableRows::Each(|about| {
                let rows = about.snapshot.catalog().sources().flat_map(|source| {
                    let declared = source.indexes.iter().filter(|index| !index.is_native());
                    declared
                        .map(|index| about.index(source, index))
                        .collect::<Vec<_>>()
                });
                Ok(rows.collect())
            }),
        )
    }

    pub fn snapshot(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<DirectoryTable> {
        DirectoryTable::bind(arguments, ambient, TableRows::Cut)
    }

    pub fn status(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<DirectoryTable> {
        DirectoryTable::bind(
            arguments,
            ambient,
            TableRows::Each(|about| {
                let mut entries = vec![("extension", about.file.to_owned())];
                entries.extend(status_entries(&about.directory.status()?));
                Ok(entries
                    .into_iter()
                    .map(|(key, value)| vec![about.dir(), Cell::from(key), Cell::Text(value)])
                    .collect())
            }),
        )
    }

    pub fn losses(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<DirectoryTable> {
        DirectoryTable::bind(
            arguments,
            ambient,
            TableRows::Each(|about| {
                let losses = about.snapshot.losses(about.poll)?;
                Ok(losses.iter().map(|loss| about.loss(loss)).collect())
            }),
        )
    }

    pub fn pins(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<DirectoryTable> {
        DirectoryTable::bind(
            arguments,
            ambient,
            TableRows::Each(|about| pins::rows(about.dir)),
        )
    }

    pub fn rows(&self, ambient: &Ambient<'_>) -> Result<Rows> {
        let paths = self.given.paths(ambient)?;
        let rows_of = match self.rows {
            TableRows::Each(rows) => rows,
            TableRows::Cut => return cut(&paths),
        };
        let mut rows = Vec::new();
        for path in paths {
            let directory = directory::open(&path)?;
            let about = About {
                dir: &path.display().to_string(),
                directory: &directory,
                snapshot: &directory.snapshot()?,
                poll: &Poll::new(ambient.stop),
                file: ambient.file,
            };
            rows.extend(rows_of(&about)?);
        }
        Ok(rows)
    }
}

/// Where directories stand together.
fn cut(paths: &[PathBuf]) -> Result<Rows> {
    let directories = paths.iter().map(|path| directory::open(path));
    let cut = Cut::take(&directories.collect::<Result<Vec<_>>>()?)?;
    let rows = paths.iter().zip(&cut.positions).map(|(path, position)| {
        vec![
            Cell::Text(path.display().to_string()),
            Cell::from(position.0),
            Cell::Int(cut.apart.as_nanos() as i128),
        ]
    });
    Ok(rows.collect())
}

impl About<'_> {
    fn dir(&self) -> Cell {
        Cell::from(self.dir)
    }

    fn source(&self, source: &Source, totals: &SourceTotals) -> Result<Vec<Cell>> {
        let fields: Vec<String> = source.fields.iter().map(field_text).collect();
        let time =
            |ts: Option<Timestamp>| Cell::from(ts.map(|ts| Cell::Int(i128::from(micros(ts.0)))));
        Ok(vec![
            self.dir(),
            Cell::from(source.name.as_str()),
            Cell::from(u64::from(source.id.0)),
            Cell::Text(fields.join(", ")),
            Cell::from(totals.records),
            Cell::from(totals.bytes),
            time(totals.first_ts),
            time(totals.last_ts),
            Cell::from(if source.closed_at.is_some() {
                "closed"
            } else {
                "open"
            }),
        ])
    }

    fn loss(&self, loss: &Loss) -> Vec<Cell> {
        let text = |text: &str| Cell::Text(text.to_owned());
        vec![
            self.dir(),
            Cell::Int(i128::from(micros_or_infinity(loss.from))),
            Cell::Int(i128::from(micros_or_infinity(loss.to))),
            Cell::from(loss.source.as_deref().map(text)),
            text(&loss.stage),
            text(&loss.reason),
            Cell::from(loss.records.map(Cell::from)),
            Cell::from(loss.bytes.map(Cell::from)),
        ]
    }

    fn index(&self, source: &Source, index: &Index) -> Vec<Cell> {
        let text = |text: &Option<String>| Cell::from(text.clone().map(Cell::Text));
        vec![
            self.dir(),
            Cell::from(source.name.as_str()),
            Cell::from(index.name.as_str()),
            text(&index.def.value),
            text(&index.def.filter),
            Cell::Text(bins_text(&index.def.bins)),
            Cell::from(index.since.0),
            Cell::from(index.until.map(|until| Cell::from(until.0))),
            Cell::from(if index.is_open() { "open" } else { "closed" }),
        ]
    }
}

/// The ends of time are DuckDB's infinities.
fn micros_or_infinity(time: Timestamp) -> i64 {
    match time {
        Timestamp::MIN => -TIMESTAMP_INFINITY,
        Timestamp::MAX => TIMESTAMP_INFINITY,
        Timestamp(nanos) => micros(nanos),
    }
}

/// As a configuration would write them.
fn bins_text(bins: &BinsDef) -> String {
    match bins {
        BinsDef::Auto => "auto".to_owned(),
        BinsDef::Linear { from, step, count } => {
            format!("{{ from = {from}, step = {step}, count = {count} }}")
        }
        BinsDef::Geometric {
            from,
            factor,
            count,
        } => format!("{{ from = {from}, factor = {factor}, count = {count} }}"),
        BinsDef::Edges(edges) => {
            let edges: Vec<String> = edges.iter().map(ToString::to_string).collect();
            format!("[{}]", edges.join(", "))
        }
    }
}

fn field_text(field: &FieldDef) -> String {
    let nullable = if field.nullable { " nullable" } else { "" };
    format!("{} {}{nullable}", field.name, field.ty)
}

/// What a directory and its daemon say of themselves. Addresses are bytes of the record log.
fn status_entries(status: &Status) -> Vec<(&'static str, String)> {
    let PerLog {
        records,
        chunks,
        times,
    } = status.writer.logs;
    let daemon = match (status.writer.alive, status.writer.stopping) {
        (true, false) => "alive",
        (true, true) => "stopping",
        (false, _) => "not running",
    };
    let mut entries = vec![("daemon", daemon.to_owned())];
    if status.writer.alive {
        entries.extend([
            ("heartbeat_ns", status.writer.heartbeat.to_string()),
            ("clock_offset_ns", status.writer.clock_offset_ns.to_string()),
            ("stalls", status.writer.stalls.to_string()),
            ("stall_ns", status.writer.stall_ns.to_string()),
            (
                "staged_bytes",
                (records.tail.0.saturating_sub(records.head.0)).to_string(),
            ),
            ("flushed", records.flushed.to_string()),
            ("durable", records.durable.to_string()),
            ("chunks_tail", chunks.tail.to_string()),
            ("times_tail", times.tail.to_string()),
        ]);
    }
    let uuid: String = status
        .uuid
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    entries.extend([
        ("uuid", uuid),
        ("epoch", status.epoch.to_string()),
        ("position", status.position.to_string()),
        ("begin", status.begin.to_string()),
        ("column_segments", status.columns.segments.to_string()),
        ("column_bytes", status.columns.bytes.to_string()),
        ("column_rows_bytes", status.columns.rows_bytes.to_string()),
        ("chunk_bytes", status.chunk_bytes.to_string()),
        ("chunks", status.chunks.to_string()),
        ("summarised_chunks", status.summarised_chunks.to_string()),
        ("sources", status.sources.to_string()),
        ("open_sources", status.open_sources.to_string()),
        ("indexes", status.indexes.to_string()),
        ("open_indexes", status.open_indexes.to_string()),
    ]);
    entries
}

pub fn scan_stats() -> Rows {
    stats::latest()
        .into_iter()
        .map(|record| {
            vec![
                Cell::from(record.scan),
                Cell::Text(record.dir),
                Cell::Text(record.source),
                Cell::from(record.stats.nodes_opened),
                Cell::from(record.stats.chunks_total),
                Cell::from(record.stats.chunks_pruned),
                Cell::from(record.stats.chunks_read),
                Cell::from(record.stats.bytes_read),
                Cell::from(record.note.map(Cell::from)),
            ]
        })
        .collect()
}

/// Columns by name and type.
pub fn columns(declared: &[(&str, SqlType)]) -> Vec<Column> {
    declared
        .iter()
        .map(|(name, ty)| Column::new(*name, *ty))
        .collect()
}

pub fn sources_columns() -> Vec<Column> {
    columns(&[
        ("dir", SqlType::Text),
        ("name", SqlType::Text),
        ("id", SqlType::U16),
        ("fields", SqlType::Text),
        ("records", SqlType::U64),
        ("bytes", SqlType::U64),
        ("first_ts", SqlType::TimestampTz),
        ("last_ts", SqlType::TimestampTz),
        ("state", SqlType::Text),
    ])
}

pub fn indexes_columns() -> Vec<Column> {
    columns(&[
        ("dir", SqlType::Text),
        ("source", SqlType::Text),
        ("index", SqlType::Text),
        ("value", SqlType::Text),
        ("filter", SqlType::Text),
        ("bins", SqlType::Text),
        ("since_addr", SqlType::U64),
        ("until_addr", SqlType::U64),
        ("state", SqlType::Text),
    ])
}

pub fn losses_columns() -> Vec<Column> {
    columns(&[
        ("dir", SqlType::Text),
        ("from_ts", SqlType::TimestampTz),
        ("to_ts", SqlType::TimestampTz),
        ("source", SqlType::Text),
        ("stage", SqlType::Text),
        ("reason", SqlType::Text),
        ("records", SqlType::U64),
        ("bytes", SqlType::U64),
    ])
}

pub fn snapshot_columns() -> Vec<Column> {
    columns(&[
        ("dir", SqlType::Text),
        ("position", SqlType::U64),
        ("apart_ns", SqlType::U64),
    ])
}

pub fn status_columns() -> Vec<Column> {
    columns(&[
        ("dir", SqlType::Text),
        ("key", SqlType::Text),
        ("value", SqlType::Text),
    ])
}

pub fn scan_stats_columns() -> Vec<Column> {
    columns(&[
        ("scan", SqlType::U64),
        ("dir", SqlType::Text),
        ("source", SqlType::Text),
        ("nodes_opened", SqlType::U64),
        ("chunks_total", SqlType::U64),
        ("chunks_pruned", SqlType::U64),
        ("chunks_read", SqlType::U64),
        ("bytes_read", SqlType::U64),
        ("note", SqlType::Text),
    ])
}
