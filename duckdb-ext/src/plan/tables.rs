//! The small tables about a directory: its sources, indexes, position, losses and state, and the reads of the latest scans.

use std::path::PathBuf;
use std::sync::Arc;

use loom_engine::query::{Cut, Directory, Loss, Poll, Snapshot, SourceTotals, Status};
use loom_engine::schema::{BinsDef, FieldDef, Index, Source};
use loom_engine::{PerLog, Timestamp};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::columns;
use super::datum::TIMESTAMP_INFINITY;
use super::directory;
use super::function::{Bound, Function, SmallTable};
use super::parameters::DIR;
use super::paths::Given;
use super::pins;
use super::stats;
use super::time::micros;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::Cell;

type Rows = Vec<Vec<Cell>>;

pub const SOURCES: Function = Function {
    name: "loom_sources",
    description: "The sources of a Loom directory.",
    columns: "`dir`, `name`, `id`, `fields`, `records`, `bytes`, `first_ts`, `last_ts`, `state`",
    examples: &["FROM loom_sources('telemetry.loom')"],
    positional: &[DIR],
    named: &[],
    bind: |arguments, ambient| {
        let columns = &[
            ("dir", SqlType::Text),
            ("name", SqlType::Text),
            ("id", SqlType::U16),
            ("fields", SqlType::Text),
            ("records", SqlType::U64),
            ("bytes", SqlType::U64),
            ("first_ts", SqlType::TimestampTz),
            ("last_ts", SqlType::TimestampTz),
            ("state", SqlType::Text),
        ];
        of_each(arguments, ambient, columns, |about| {
            let totals = about.snapshot.totals()?;
            let held = |source: &Source| totals.get(&source.id).copied().unwrap_or_default();
            let sources = about.snapshot.catalog().sources();
            Ok(sources
                .map(|source| about.source(source, &held(source)))
                .collect())
        })
    },
};

pub const INDEXES: Function = Function {
    name: "loom_indexes",
    description: "The indexes of a Loom directory, open and closed.",
    columns: "`dir`, `source`, `index`, `value`, `filter`, `bins`, `since_addr`, `until_addr`, `state`",
    examples: &["FROM loom_indexes('telemetry.loom')"],
    positional: &[DIR],
    named: &[],
    bind: |arguments, ambient| {
        let columns = &[
            ("dir", SqlType::Text),
            ("source", SqlType::Text),
            ("index", SqlType::Text),
            ("value", SqlType::Text),
            ("filter", SqlType::Text),
            ("bins", SqlType::Text),
            ("since_addr", SqlType::U64),
            ("until_addr", SqlType::U64),
            ("state", SqlType::Text),
        ];
        of_each(arguments, ambient, columns, |about| {
            let sources = about.snapshot.catalog().sources();
            let indexes =
                sources.flat_map(|source| source.indexes.iter().map(move |index| (source, index)));
            let declared = indexes.filter(|(_, index)| !index.is_native());
            Ok(declared
                .map(|(source, index)| about.index(source, index))
                .collect())
        })
    },
};

pub const SNAPSHOT: Function = Function {
    name: "loom_snapshot",
    description: "The position up to which a Loom directory is published now. For several directories, the rows are positions at one moment. Pass a position, or a list of the rows, as at.",
    columns: "`dir`, `position`, `apart_ns`",
    examples: &[
        "SET VARIABLE p = (SELECT position FROM loom_snapshot('telemetry.loom'))",
        "SET VARIABLE cut = (SELECT list(row) FROM loom_snapshot(['telemetry.loom', 'other.loom']) AS row)",
    ],
    positional: &[DIR],
    named: &[],
    bind: |arguments, ambient| {
        let given = opened(arguments, ambient)?;
        let columns = columns(&[
            ("dir", SqlType::Text),
            ("position", SqlType::U64),
            ("apart_ns", SqlType::U64),
        ]);
        Ok(SmallTable::bound(columns, move |ambient| {
            cut(&given.paths(ambient)?)
        }))
    },
};

pub const LOSSES: Function = Function {
    name: "loom_losses",
    description: "The records known to be missing from a Loom directory: refused, dropped, in gaps after a crash, or in damaged chunks. records and bytes are NULL where their number is unknown.",
    columns: "`dir`, `from_ts`, `to_ts`, `source`, `stage`, `reason`, `records`, `bytes`",
    examples: &["FROM loom_losses('telemetry.loom') WHERE to_ts > now() - INTERVAL 1 HOUR"],
    positional: &[DIR],
    named: &[],
    bind: |arguments, ambient| {
        let columns = &[
            ("dir", SqlType::Text),
            ("from_ts", SqlType::TimestampTz),
            ("to_ts", SqlType::TimestampTz),
            ("source", SqlType::Text),
            ("stage", SqlType::Text),
            ("reason", SqlType::Text),
            ("records", SqlType::U64),
            ("bytes", SqlType::U64),
        ];
        of_each(arguments, ambient, columns, |about| {
            let losses = about.snapshot.losses(about.poll)?;
            Ok(losses.iter().map(|loss| about.loss(loss)).collect())
        })
    },
};

pub const PINS: Function = Function {
    name: pins::FUNCTION,
    description: "The pins of a Loom directory: the records that its rules kept around their alerts, or people by hand, each a folder of Parquet files at path.",
    columns: "`dir`, `id`, `rule`, `kept_by`, `from_ts`, `to_ts`, `path`, `records`, `bytes`, `missing`",
    examples: &["FROM loom_pins('telemetry.loom') ORDER BY to_ts DESC LIMIT 10"],
    positional: &[DIR],
    named: &[],
    bind: |arguments, ambient| {
        of_each(arguments, ambient, &pins::COLUMNS, |about| {
            pins::rows(about.dir)
        })
    },
};

pub const STATUS: Function = Function {
    name: "loom_status",
    description: "The state of a Loom directory and of its daemon.",
    columns: "`dir`, `key`, `value`",
    examples: &["FROM loom_status('telemetry.loom')"],
    positional: &[DIR],
    named: &[],
    bind: |arguments, ambient| {
        let columns = &[
            ("dir", SqlType::Text),
            ("key", SqlType::Text),
            ("value", SqlType::Text),
        ];
        of_each(arguments, ambient, columns, |about| {
            let entries = status_entries(&about.directory.status()?);
            let file = [("extension", about.file.to_owned())];
            let row = |(key, value)| vec![about.dir(), Cell::from(key), Cell::Text(value)];
            Ok(file.into_iter().chain(entries).map(row).collect())
        })
    },
};

pub const SCAN_STATS: Function = Function {
    name: "loom_scan_stats",
    description: "The latest scans of this process, and how much they opened, pruned and read.",
    columns: "`scan`, `dir`, `source`, `nodes_opened`, `chunks_total`, `chunks_pruned`, `chunks_outside_zones`, `chunks_read`, `bytes_read`, `note`",
    examples: &["FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1"],
    positional: &[],
    named: &[],
    bind: |_, _| {
        let columns = columns(&[
            ("scan", SqlType::U64),
            ("dir", SqlType::Text),
            ("source", SqlType::Text),
            ("nodes_opened", SqlType::U64),
            ("chunks_total", SqlType::U64),
            ("chunks_pruned", SqlType::U64),
            ("chunks_outside_zones", SqlType::U64),
            ("chunks_read", SqlType::U64),
            ("bytes_read", SqlType::U64),
            ("note", SqlType::Text),
        ]);
        Ok(SmallTable::bound(columns, |_| Ok(scan_stats())))
    },
};

/// One directory that a call reads.
struct About<'a> {
    /// Its path, as the rows show it.
    dir: &'a str,
    directory: &'a Arc<Directory>,
    snapshot: &'a Snapshot,
    poll: &'a Poll<'a>,
    /// The name of the extension file that DuckDB loaded.
    file: &'static str,
}

/// The directories of a call, each of which can be opened.
fn opened(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<Given> {
    let given = arguments.directories(ambient)?;
    for path in given.paths(ambient)? {
        directory::open(&path)?;
    }
    Ok(given)
}

/// A call that shows the rows of each directory, one directory after the other.
fn of_each(
    arguments: &Arguments,
    ambient: &Ambient<'_>,
    declared: &[(&str, SqlType)],
    rows_of: fn(&About<'_>) -> Result<Rows>,
) -> Result<Bound> {
    let given = opened(arguments, ambient)?;
    Ok(SmallTable::bound(columns(declared), move |ambient| {
        let mut rows = Vec::new();
        for path in given.paths(ambient)? {
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
    }))
}

/// The rows of `loom_snapshot`: one cut through all directories.
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

    fn source(&self, source: &Source, totals: &SourceTotals) -> Vec<Cell> {
        let fields: Vec<String> = source.fields.iter().map(field_text).collect();
        let time =
            |ts: Option<Timestamp>| Cell::from(ts.map(|ts| Cell::Int(i128::from(micros(ts.0)))));
        let state = if source.is_open() { "open" } else { "closed" };
        vec![
            self.dir(),
            Cell::from(source.name.as_str()),
            Cell::from(u64::from(source.id.0)),
            Cell::Text(fields.join(", ")),
            Cell::from(totals.records),
            Cell::from(totals.bytes),
            time(totals.first_ts),
            time(totals.last_ts),
            Cell::from(state),
        ]
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

/// The ends of time become DuckDB's infinities.
fn micros_or_infinity(time: Timestamp) -> i64 {
    match time {
        Timestamp::MIN => -TIMESTAMP_INFINITY,
        Timestamp::MAX => TIMESTAMP_INFINITY,
        Timestamp(nanos) => micros(nanos),
    }
}

/// Writes bins as a configuration does.
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

/// The state of a directory and its daemon. Addresses are bytes of the record log.
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
            ("encoded", records.flushed.to_string()),
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
        (
            "records_disk_bytes",
            status.record_segments.disk_bytes.to_string(),
        ),
        (
            "records_encoded_bytes",
            status.record_segments.encoded_bytes.to_string(),
        ),
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

fn scan_stats() -> Rows {
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
                Cell::from(record.stats.chunks_outside_zones),
                Cell::from(record.stats.chunks_read),
                Cell::from(record.stats.bytes_read),
                Cell::from(record.note.map(Cell::from)),
            ]
        })
        .collect()
}
