//! The table functions, as a list that both adapters register, and the life of a call: bound once, started for each execution,
//! worked on by one or more threads.

use loom_engine::query::Poll;

use super::aggregate::{self, AggregatePlan};
use super::ambient::Ambient;
use super::arguments::Arguments;
use super::attach::{self, AttachPlan};
use super::chunks::{self, ChunksPlan};
use super::clause::Clause;
use super::columns::Column;
use super::estimate::{self, EstimatePlan};
use super::heat::{self, HeatPlan};
use super::histogram::{self, HistogramPlan};
use super::parameters::{DIR, INDEX, METRIC, N, Parameter, SOURCE};
use super::pins;
use super::rate::{self, RatePlan};
use super::scan::{self, ScanPlan};
use super::series::{self, LabelsPlan, SamplesPlan};
use super::series_aggregate::{self, SeriesAggregatePlan};
use super::tables::{self, DirectoryTable};
use super::tail::{self, TailPlan};
use super::top::{self, TopPlan};
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::TableRun;
use crate::exec::samples::{SamplesRun, SamplesWorker};
use crate::exec::scan::{ScanRun, ScanWorker};
use crate::exec::series_aggregate::{SeriesAggregateRun, SeriesAggregateWorker};
use crate::exec::tail::TailRun;
use crate::exec::top::TopRun;
use crate::exec::vectors::{Output, RawVectors};

pub struct Function {
    pub name: &'static str,
    pub description: &'static str,
    /// Statements that may be run as they are where a directory has such names.
    pub examples: &'static [&'static str],
    pub positional: &'static [Parameter],
    pub named: &'static [Parameter],
    bind: fn(&Arguments, &Ambient<'_>) -> Result<Bound>,
}

pub const FUNCTIONS: &[Function] = &[
    Function {
        name: "loom_scan",
        description: "The records of a source of a Loom directory, in log order.",
        examples: &[
            "FROM loom_scan('telemetry.loom', 'requests', last := INTERVAL 5 MINUTE) WHERE latency_ns > 1000000",
            "FROM loom_scan('hosts/*.loom', 'requests', index := 'latency', v_min := 1000000)",
        ],
        positional: &[DIR, SOURCE],
        named: scan::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Scan(ScanPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_aggregate",
        description: "Exact count, sum, min, max, avg and quantiles of an index of a source, from summaries.",
        examples: &[
            "FROM loom_aggregate('telemetry.loom', 'requests', 'latency', bucket := INTERVAL 1 MINUTE, quantiles := [0.5, 0.9999])",
        ],
        positional: &[DIR, SOURCE, INDEX],
        named: aggregate::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Aggregate(AggregatePlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_histogram",
        description: "The number of values in each bin of an index of a source, with their sum, min and max where the bins are defined. A bin is [lower, upper); NULL means no end, or an end beyond the type. Empty bins are omitted.",
        examples: &[
            "FROM loom_histogram('telemetry.loom', 'requests', 'latency', bucket := INTERVAL 1 MINUTE)",
        ],
        positional: &[DIR, SOURCE, INDEX],
        named: histogram::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Histogram(HistogramPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_heat",
        description: "The number of values of an index of a source in each cell of time and value, for a heat map: from t1 to t2, from lower to upper. Empty cells are omitted.",
        examples: &[
            "FROM loom_heat('telemetry.loom', 'requests', 'latency', last := INTERVAL 1 HOUR, points := 200)",
        ],
        positional: &[DIR, SOURCE, INDEX],
        named: heat::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Heat(HeatPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_rate",
        description: "The number of records of a source in each bucket of time, and per second. It needs no index.",
        examples: &[
            "FROM loom_rate('telemetry.loom', 'requests', bucket := INTERVAL 1 SECOND, last := INTERVAL 5 MINUTE)",
        ],
        positional: &[DIR, SOURCE],
        named: rate::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Rate(RatePlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_top",
        description: "The n records of a source with the greatest values of an index, the greatest first; of equal values those that arrived first.",
        examples: &["FROM loom_top('telemetry.loom', 'requests', 'latency', 10)"],
        positional: &[DIR, SOURCE, INDEX, N],
        named: top::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Top(TopPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_tail",
        description: "The latest n records of a source of a Loom directory, newest first; records of several directories are ordered by arrival.",
        examples: &["FROM loom_tail('telemetry.loom', 'requests', 10)"],
        positional: &[DIR, SOURCE, N],
        named: tail::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Tail(TailPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_series",
        description: "The values of time series, found by their labels.",
        examples: &[
            "FROM loom_series('telemetry.loom', 'http_requests_total', labels := MAP {'method': 'GET', 'code': '5..'}, last := INTERVAL 1 HOUR)",
        ],
        positional: &[DIR, METRIC],
        named: series::SERIES_PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Samples(SamplesPlan::series(arguments, ambient)?)),
    },
    Function {
        name: "loom_series_aggregate",
        description: "Statistics of the values of each time series, or of groups of them, over a window, whole or by buckets of time.",
        examples: &[
            "FROM loom_series_aggregate('telemetry.loom', 'node_load1', bucket := INTERVAL 1 MINUTE, last := INTERVAL 1 HOUR)",
            "FROM loom_series_aggregate('telemetry.loom', 'http_requests_total', by := ['code'], last := INTERVAL 1 HOUR)",
        ],
        positional: &[DIR, METRIC],
        named: series_aggregate::PARAMETERS,
        bind: |arguments, ambient| {
            Ok(Bound::SeriesAggregate(SeriesAggregatePlan::bind(
                arguments, ambient,
            )?))
        },
    },
    Function {
        name: "loom_samples",
        description: "The values of time series by their labels, with the number of each series; loom_labels has their labels, and loom_series shows both.",
        examples: &[
            "FROM loom_samples('telemetry.loom', 'node_load1', label_names := ['job'], label_patterns := ['node'], last := INTERVAL 1 HOUR)",
        ],
        positional: &[DIR, METRIC],
        named: series::SAMPLES_PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Samples(SamplesPlan::samples(arguments, ambient)?)),
    },
    Function {
        name: "loom_labels",
        description: "The labels of time series, one a row, and where their values stand.",
        examples: &["FROM loom_labels('telemetry.loom', 'node_load1')"],
        positional: &[DIR, METRIC],
        named: series::LABELS_PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Labels(LabelsPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_estimate",
        description: "About what a scan of a source would read, and with an index what its aggregate and its quantiles would read, in chunks and bytes: the summaries say it, no record is read.",
        examples: &[
            "FROM loom_estimate('telemetry.loom', 'requests', index := 'latency', bucket := INTERVAL 1 SECOND, last := INTERVAL 1 HOUR)",
        ],
        positional: &[DIR, SOURCE],
        named: estimate::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Estimate(EstimatePlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_sources",
        description: "The sources of a Loom directory.",
        examples: &["FROM loom_sources('telemetry.loom')"],
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
        examples: &["FROM loom_indexes('telemetry.loom')"],
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
        name: "loom_chunks",
        description: "The chunks of a Loom directory, and what each holds of each source.",
        examples: &["FROM loom_chunks('telemetry.loom', source := 'requests')"],
        positional: &[DIR],
        named: chunks::PARAMETERS,
        bind: |arguments, ambient| Ok(Bound::Chunks(ChunksPlan::bind(arguments, ambient)?)),
    },
    Function {
        name: "loom_snapshot",
        description: "The position up to which a Loom directory is published now, and several directories at one moment; pass it, or a list of the rows, as at.",
        examples: &[
            "SET VARIABLE p = (SELECT position FROM loom_snapshot('telemetry.loom'))",
            "SET VARIABLE cut = (SELECT list(row) FROM loom_snapshot(['telemetry.loom', 'other.loom']) AS row)",
        ],
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
        name: "loom_losses",
        description: "The records known to be missing from a Loom directory: refused, dropped, in gaps after a crash, or in damaged chunks. records and bytes are NULL where their number is unknown.",
        examples: &["FROM loom_losses('telemetry.loom') WHERE to_ts > now() - INTERVAL 1 HOUR"],
        positional: &[DIR],
        named: &[],
        bind: |arguments, ambient| {
            Ok(Bound::Table(
                tables::losses_columns(),
                DirectoryTable::losses(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: pins::FUNCTION,
        description: "The pins of a Loom directory: what its rules kept around their alerts, each a folder of Parquet files at path.",
        examples: &["FROM loom_pins('telemetry.loom') ORDER BY to_ts DESC LIMIT 10"],
        positional: &[DIR],
        named: &[],
        bind: |arguments, ambient| {
            Ok(Bound::Table(
                pins::pins_columns(),
                DirectoryTable::pins(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: "loom_status",
        description: "The state of a Loom directory and of its daemon.",
        examples: &["FROM loom_status('telemetry.loom')"],
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
        name: "loom_attach",
        description: "The statements that create a catalog with a view for each source of a Loom directory, in order.",
        examples: &["FROM loom_attach('telemetry.loom', name := 'yesterday')"],
        positional: &[DIR],
        named: &[attach::NAME, attach::ARCHIVE],
        bind: |arguments, ambient| {
            Ok(Bound::Attach(
                attach::statement_columns(),
                AttachPlan::bind(arguments, ambient)?,
            ))
        },
    },
    Function {
        name: "loom_scan_stats",
        description: "What the latest scans of this process opened, pruned and read.",
        examples: &["FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1"],
        positional: &[],
        named: &[],
        bind: |_, _| Ok(Bound::ScanStats(tables::scan_stats_columns())),
    },
];

impl Function {
    /// The description, and what each parameter means.
    pub fn documentation(&self) -> String {
        let mut text = self.description.to_owned();
        for parameter in self.positional.iter().chain(self.named) {
            text.push_str(&format!("\n{}: {}", parameter.name, parameter.about));
        }
        text
    }

    pub fn bind(&self, arguments: &Arguments, ambient: &Ambient<'_>) -> Result<Bound> {
        (self.bind)(arguments, ambient)
    }
}

/// A call whose arguments have been understood.
pub enum Bound {
    Scan(ScanPlan),
    Tail(TailPlan),
    Aggregate(AggregatePlan),
    Histogram(HistogramPlan),
    Heat(HeatPlan),
    Rate(RatePlan),
    Top(TopPlan),
    Samples(SamplesPlan),
    SeriesAggregate(SeriesAggregatePlan),
    Labels(LabelsPlan),
    Estimate(EstimatePlan),
    Chunks(ChunksPlan),
    Table(Vec<Column>, DirectoryTable),
    Attach(Vec<Column>, AttachPlan),
    ScanStats(Vec<Column>),
}

impl Bound {
    pub fn columns(&self) -> &[Column] {
        match self {
            Bound::Scan(plan) => plan.columns(),
            Bound::Tail(plan) => plan.columns(),
            Bound::Aggregate(plan) => plan.columns(),
            Bound::Histogram(plan) => plan.columns(),
            Bound::Heat(plan) => plan.columns(),
            Bound::Rate(plan) => plan.columns(),
            Bound::Top(plan) => plan.columns(),
            Bound::Samples(plan) => plan.columns(),
            Bound::SeriesAggregate(plan) => plan.columns(),
            Bound::Labels(plan) => plan.columns(),
            Bound::Estimate(plan) => plan.columns(),
            Bound::Chunks(plan) => plan.columns(),
            Bound::Table(columns, _) | Bound::Attach(columns, _) | Bound::ScanStats(columns) => {
                columns
            }
        }
    }

    /// About how many rows an execution gives, where that is known.
    pub fn rows_estimate(&self) -> Option<u64> {
        match self {
            Bound::Scan(plan) => Some(plan.rows_estimate()),
            Bound::Tail(plan) => Some(plan.rows_estimate()),
            Bound::Top(plan) => Some(plan.rows_estimate()),
            _ => None,
        }
    }

    /// Whether a `WHERE` clause says what need not be read.
    pub fn prunes(&self) -> bool {
        matches!(
            self,
            Bound::Scan(_)
                | Bound::Aggregate(_)
                | Bound::Histogram(_)
                | Bound::Heat(_)
                | Bound::Rate(_)
        )
    }

    /// Takes the `WHERE` clause, to prune by and no more: each offer stands for all before it.
    pub fn offer(&self, clause: Clause) {
        match self {
            Bound::Scan(plan) => plan.offer(clause),
            Bound::Aggregate(plan) => plan.buckets.offer(clause),
            Bound::Histogram(plan) => plan.buckets.offer(clause),
            Bound::Heat(plan) => plan.buckets.offer(clause),
            Bound::Rate(plan) => plan.buckets.offer(clause),
            _ => {}
        }
    }

    /// Begins an execution that shows these columns, by their declared numbers.
    pub fn start(&self, projected: Vec<usize>, ambient: &Ambient<'_>) -> Result<Running> {
        let work = match self {
            Bound::Scan(plan) => Work::Scan(plan.start(&projected, ambient)?),
            Bound::Tail(plan) => Work::Tail(plan.start(&projected, ambient)?),
            Bound::Aggregate(plan) => {
                Work::Table(TableRun::of(plan.start(ambient)?, projected.clone()))
            }
            Bound::Histogram(plan) => {
                Work::Table(TableRun::of(plan.start(ambient)?, projected.clone()))
            }
            Bound::Heat(plan) => Work::Table(TableRun::of(plan.start(ambient)?, projected.clone())),
            Bound::Rate(plan) => Work::Table(TableRun::of(plan.start(ambient)?, projected.clone())),
            Bound::Top(plan) => Work::Top(plan.start(&projected, ambient)?),
            Bound::Samples(plan) => Work::Samples(Box::new(plan.start(&projected, ambient)?)),
            Bound::SeriesAggregate(plan) => {
                Work::SeriesAggregate(Box::new(plan.start(&projected, ambient)?))
            }
            Bound::Labels(plan) => {
                Work::Table(TableRun::new(plan.rows(ambient)?, projected.clone()))
            }
            Bound::Estimate(plan) => {
                Work::Table(TableRun::new(plan.rows(ambient)?, projected.clone()))
            }
            Bound::Chunks(plan) => {
                Work::Table(TableRun::of(plan.start(ambient)?, projected.clone()))
            }
            Bound::Table(_, table) => {
                Work::Table(TableRun::new(table.rows(ambient)?, projected.clone()))
            }
            Bound::Attach(_, attachment) => {
                Work::Table(TableRun::new(attachment.rows(ambient)?, projected.clone()))
            }
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
    Tail(TailRun),
    Top(TopRun),
    Samples(Box<SamplesRun>),
    SeriesAggregate(Box<SeriesAggregateRun>),
    Table(TableRun),
}

impl Running {
    pub fn threads(&self) -> usize {
        match &self.work {
            Work::Scan(run) => run.threads(),
            Work::Samples(run) => run.threads(),
            Work::SeriesAggregate(run) => run.threads(),
            Work::Tail(_) | Work::Top(_) | Work::Table(_) => 1,
        }
    }

    /// From 0 to 1.
    pub fn progress(&self) -> f64 {
        match &self.work {
            Work::Scan(run) => run.progress().clamp(0.0, 1.0),
            Work::Samples(run) => run.progress().clamp(0.0, 1.0),
            Work::SeriesAggregate(run) => run.progress().clamp(0.0, 1.0),
            Work::Tail(_) | Work::Top(_) | Work::Table(_) => 0.0,
        }
    }

    pub fn worker(&self) -> Worker {
        match &self.work {
            Work::Scan(run) => Worker::Scan(run.worker()),
            Work::Samples(run) => Worker::Samples(run.worker()),
            Work::SeriesAggregate(run) => Worker::SeriesAggregate(run.worker()),
            Work::Tail(_) | Work::Top(_) | Work::Table(_) => Worker::Alone,
        }
    }
}

/// One thread's part of an execution.
pub enum Worker {
    Scan(ScanWorker),
    Samples(SamplesWorker),
    SeriesAggregate(SeriesAggregateWorker),
    /// The execution has one thread and holds all of it.
    Alone,
}

impl Worker {
    /// Where the rows of the last vector stand in the whole.
    pub fn batch(&self) -> u64 {
        match self {
            Worker::Scan(worker) => worker.batch(),
            Worker::Samples(worker) => worker.batch(),
            // One worker gives all rows.
            Worker::SeriesAggregate(_) | Worker::Alone => 0,
        }
    }

    /// Writes up to a vector of rows, and says so to DuckDB; none when there are no more.
    pub fn fill<V: RawVectors>(
        &mut self,
        running: &Running,
        vectors: &mut V,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut out = Output::new(vectors, &running.types);
        let poll = Poll::new(stop);
        let rows = match (&running.work, self) {
            (Work::Scan(run), Worker::Scan(worker)) => worker.fill(run, &mut out, &poll)?,
            (Work::Samples(run), Worker::Samples(worker)) => worker.fill(run, &mut out, &poll)?,
            (Work::Tail(run), _) => run.fill(&mut out, &poll)?,
            (Work::Top(run), _) => run.fill(&mut out)?,
            (Work::Table(run), _) => run.fill(&mut out, &poll)?,
            (Work::SeriesAggregate(run), Worker::SeriesAggregate(worker)) => {
                worker.fill(run, &mut out, &poll)?
            }
            (Work::Scan(_) | Work::Samples(_) | Work::SeriesAggregate(_), _) => {
                unreachable!("a worker is of its execution")
            }
        };
        out.finish(rows)
    }
}
