//! `loom_series_aggregate`: statistics of the samples of each series, or of groups of them, over a window, whole or by buckets of time.

use std::sync::Arc;

use loom_engine::query::Bucket;

use super::ambient::Ambient;
use super::arguments::{Arguments, mismatch};
use super::bucket;
use super::columns::Column;
use super::datum::Datum;
use super::function::{Function, Plan};
use super::parameters::{AT, BUCKET, BY, COMPLETE, DIR, LAST, METRIC, SERIES_LABELS, T_FROM, T_TO};
use super::series::SamplesAsked;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::run::Run;
use crate::exec::series_aggregate::{SeriesAggregateRun, SeriesColumn};
use crate::exec::series_groups::SeriesGroups;

/// All columns. `bucket` is shown only with buckets, and `dir` only without groups.
const COLUMNS: &[(SeriesColumn, &str, SqlType)] = &[
    (SeriesColumn::Bucket, "bucket", SqlType::TimestampTz),
    (SeriesColumn::Labels, "labels", SqlType::TextMap),
    (SeriesColumn::Count, "count", SqlType::I64),
    (SeriesColumn::Sum, "sum", SqlType::F64),
    (SeriesColumn::Min, "min", SqlType::F64),
    (SeriesColumn::Max, "max", SqlType::F64),
    (SeriesColumn::Avg, "avg", SqlType::F64),
    (SeriesColumn::Last, "last", SqlType::F64),
    (SeriesColumn::Dir, "dir", SqlType::Text),
];

pub const FUNCTION: Function = Function {
    name: "loom_series_aggregate",
    description: "Statistics of the values of each time series, or of groups of them, over a window, whole or by buckets of time.",
    columns: "`bucket` if it is given, `labels`, `count`, `sum`, `min`, `max`, `avg`, `last`, `dir` without `by`",
    examples: &[
        "FROM loom_series_aggregate('telemetry.loom', 'node_load1', bucket := INTERVAL 1 MINUTE, last := INTERVAL 1 HOUR)",
        "FROM loom_series_aggregate('telemetry.loom', 'http_requests_total', by := ['code'], last := INTERVAL 1 HOUR)",
    ],
    positional: &[DIR, METRIC],
    named: &[SERIES_LABELS, BY, BUCKET, T_FROM, T_TO, LAST, AT, COMPLETE],
    bind: |arguments, ambient| Ok(Box::new(SeriesAggregatePlan::bind(arguments, ambient)?)),
};

struct SeriesAggregatePlan {
    samples: SamplesAsked,
    bucket: Option<Bucket>,
    /// The labels that form groups of series; `None` if each series is a group.
    by: Option<Vec<String>>,
    shown: Vec<SeriesColumn>,
    columns: Vec<Column>,
}

impl SeriesAggregatePlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<SeriesAggregatePlan> {
        let bucket = bucket::of(arguments)?;
        let by = labels_of(arguments)?;
        let is_shown = |column: SeriesColumn| match column {
            SeriesColumn::Bucket => bucket.is_some(),
            // A group may hold series of several directories.
            SeriesColumn::Dir => by.is_none(),
            _ => true,
        };
        let declared = COLUMNS.iter().filter(|(column, ..)| is_shown(*column));
        Ok(SeriesAggregatePlan {
            samples: SamplesAsked::bind(arguments, ambient)?,
            bucket,
            shown: declared.clone().map(|(column, ..)| *column).collect(),
            columns: declared
                .map(|(_, name, ty)| Column::new(*name, *ty))
                .collect(),
            by,
        })
    }
}

impl Plan for SeriesAggregatePlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let shown = projected.iter().map(|column| self.shown.get(*column));
        let scan = self.samples.start(ambient)?;
        let groups = match &self.by {
            None => SeriesGroups::Each,
            Some(names) => SeriesGroups::by(names, scan.series()),
        };
        Ok(Arc::new(SeriesAggregateRun::new(
            scan,
            groups,
            self.bucket,
            shown.map(Option::<&_>::copied).collect(),
        )))
    }
}

fn labels_of(arguments: &Arguments) -> Result<Option<Vec<String>>> {
    let labels = match arguments.get(BY.name) {
        Some(other) if !matches!(other, Datum::List(_)) => {
            return Err(mismatch(
                BY.name,
                "a list of labels, such as ['job'] or []",
                other,
            ));
        }
        _ => arguments.texts(BY.name)?,
    };
    let has_empty = |labels: &Vec<String>| labels.iter().any(String::is_empty);
    if labels.as_ref().is_some_and(has_empty) {
        return Err(Problem::binder(
            "by contains an empty text; give names of labels; loom_labels(dir, metric) lists them",
        ));
    }
    Ok(labels)
}
