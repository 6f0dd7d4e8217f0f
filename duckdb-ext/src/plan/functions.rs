//! The table functions, as a list that both adapters register, and the life of a call: bound once, started for each execution,
//! worked on by one or more threads.

use loom_engine::query::Poll;

use super::aggregate::{self, AggregatePlan};
use super::arguments::{Ambient, Arguments, Parameter};
use super::columns::Column;
use super::scan::{self, ScanPlan};
use super::tables::{self, DirectoryTable};
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::TableRun;
use crate::exec::scan::{ScanRun, ScanWorker};
use crate::exec::vectors::{Output, RawVectors};

pub struct Function {
    pub name: &'static str,
    pub description: &'static str,
    pub positional: &'static [Parameter],
    pub named: &'static [Parameter],
    bind: fn(&Arguments, &Ambient<'_>) -> Result<Bound>,
}

const DIR: Parameter = Parameter {
    name: "dir",
    ty: SqlType::Any,
};
const SOURCE: Parameter = Parameter {
    name: "source",
    ty: SqlType::Text,
};
const INDEX: Parameter = Parameter {
    name: "index",
    ty: SqlType::Text,
};

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "loom_scan",
        description: "The records of a source of a Loom directory, in log order.",
        positional: &[DIR, SOURCE],
        named: scan::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Scan(ScanPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_aggregate",
        description: "Exact count, sum, min, max, avg and quantiles of an index of a source, from summaries.",
        positional: &[DIR, SOURCE, INDEX],
        named: aggregate::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Aggregate(AggregatePlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_sources",
        description: "The sources of a Loom directory.",
        positional: &[DIR],
        named: &[],
        bind: |arguments, ambient| {
            Ok(Bound::Table(
                tables::sources_columns(),
                DirectoryTable::sources(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: "loom_indexes",
        description: "The indexes of a Loom directory, open and closed.",
        positional: &[DIR],
        named: &[],
        bind: |arguments, ambient| {
            Ok(Bound::Table(
                tables::indexes_columns(),
                DirectoryTable::indexes(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: "loom_snapshot",
        description: "What a Loom directory has published now, to pass as at.",
        positional: &[DIR],
        named: &[],
        bind: |arguments, ambient| {
            Ok(Bound::Table(
                tables::snapshot_columns(),
                DirectoryTable::snapshot(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: "loom_status",
        description: "The state of a Loom directory and of its daemon.",
        positional: &[DIR],
        named: &[],
        bind: |arguments, ambient| {
            Ok(Bound::Table(
                tables::status_columns(),
                DirectoryTable::status(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: "loom_scan_stats",
        description: "What this process's latest scans opened, pruned and read.",
        positional: &[],
        named: &[],
        bind: |_, _| Ok(Bound::ScanStats(tables::scan_stats_columns())),
    },
];

impl Function {
    pub fn bind(&self, arguments: &Arguments, ambient: &Ambient<'_>) -> Result<Bound> {
        (self.bind)(arguments, ambient)
    }
}

/// A call whose arguments have been understood.
pub enum Bound {
    Scan(ScanPlan),
    Aggregate(AggregatePlan),
    Table(Vec<Column>, DirectoryTable),
    ScanStats(Vec<Column>),
}

impl Bound {
    pub fn columns(&self) -> &[Column] {
        match self {
            Bound::Scan(plan) => plan.columns(),
            Bound::Aggregate(plan) => plan.columns(),
            Bound::Table(columns, _) | Bound::ScanStats(columns) => columns,
        }
    }

    /// About how many rows an execution gives, where that is known.
    pub fn rows_estimate(&self) -> Option<u64> {
        self.scan().map(ScanPlan::rows_estimate)
    }

    /// The scan that a `WHERE` clause may be offered to.
    pub fn scan(&self) -> Option<&ScanPlan> {
        match self {
            Bound::Scan(plan) => Some(plan),
            _ => None,
        }
    }

    /// Begins an execution that shows these columns, by their declared numbers.
    pub fn start(&self, projected: Vec<usize>, ambient: &Ambient<'_>) -> Result<Running> {
        let work = match self {
            Bound::Scan(plan) => Work::Scan(plan.start(&projected, ambient)?),
            Bound::Aggregate(plan) => {
                Work::Table(TableRun::new(plan.rows(ambient)?, projected.clone()))
            }
            Bound::Table(_, table) => Work::Table(TableRun::new(table.rows()?, projected.clone())),
            Bound::ScanStats(_) => {
                Work::Table(TableRun::new(tables::scan_stats(), projected.clone()))
            }
        };
        let columns = self.columns();
        let type_of = |column: &usize| {
            columns
                .get(*column)
                .map_or(SqlType::Any, |column| column.ty)
        };
        Ok(Running {
            types: projected.iter().map(type_of).collect(),
            work,
        })
    }
}

/// One execution, shared by its threads.
pub struct Running {
    /// Of the output's vectors.
    types: Vec<SqlType>,
    work: Work,
}

enum Work {
    Scan(ScanRun),
    Table(TableRun),
}

impl Running {
    pub fn threads(&self) -> usize {
        match &self.work {
            Work::Scan(run) => run.threads(),
            Work::Table(_) => 1,
        }
    }

    /// From 0 to 1.
    pub fn progress(&self) -> f64 {
        match &self.work {
            Work::Scan(run) => run.progress().clamp(0.0, 1.0),
            Work::Table(_) => 0.0,
        }
    }

    pub fn worker(&self) -> Worker {
        Worker {
            scan: match &self.work {
                Work::Scan(run) => Some(run.worker()),
                Work::Table(_) => None,
            },
        }
    }
}

/// One thread's part of an execution.
pub struct Worker {
    scan: Option<ScanWorker>,
}

impl Worker {
    /// Where the rows of the last vector stand in the whole.
    pub fn batch(&self) -> u64 {
        self.scan.as_ref().map_or(0, ScanWorker::batch)
    }

    /// Writes up to a vector of rows, and says so to DuckDB; none when there are no more.
    pub fn fill<V: RawVectors>(
        &mut self,
        running: &Running,
        vectors: &mut V,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut out = Output::new(vectors, &running.types);
        let rows = match (&running.work, &mut self.scan) {
            (Work::Scan(run), Some(worker)) => worker.fill(run, &mut out, &Poll::new(stop))?,
            (Work::Table(run), _) => run.fill(&mut out)?,
            (Work::Scan(_), None) => 0,
        };
        out.finish(rows)
    }
}
