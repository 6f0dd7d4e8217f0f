//! `loom_series_aggregate`: statistics of the samples of each series over a window, whole or by buckets of time.

use loom_engine::query::Bucket;

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::bucket;
use super::columns::Column;
use super::parameters::{AT, BUCKET, COMPLETE, LAST, Parameter, SERIES_LABELS, T_FROM, T_TO};
use super::series::SamplesAsked;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::series_aggregate::{SeriesAggregateRun, SeriesColumn};

pub const PARAMETERS: &[Parameter] = &[SERIES_LABELS, BUCKET, T_FROM, T_TO, LAST, AT, COMPLETE];

/// The columns; without buckets all but the first.
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

/// A bound call.
pub struct SeriesAggregatePlan {
    samples: SamplesAsked,
    bucket: Option<Bucket>,
    shown: Vec<SeriesColumn>,
    columns: Vec<Column>,
}

impl SeriesAggregatePlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<SeriesAggregatePlan> {
        let bucket = bucket::of(arguments)?;
        let declared = COLUMNS
            .iter()
            .filter(|(column, ..)| *column != SeriesColumn::Bucket || bucket.is_some());
        Ok(SeriesAggregatePlan {
            samples: SamplesAsked::bind(arguments, ambient)?,
            bucket,
            shown: declared.clone().map(|(column, ..)| *column).collect(),
            columns: declared
                .map(|(_, name, ty)| Column::new(*name, *ty))
                .collect(),
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Begins an execution that shows these columns.
    pub fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<SeriesAggregateRun> {
        let shown = projected.iter().map(|column| self.shown.get(*column));
        Ok(SeriesAggregateRun::new(
            self.samples.start(ambient)?,
            self.bucket,
            shown.map(Option::<&_>::copied).collect(),
        ))
    }
}
