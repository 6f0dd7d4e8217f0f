//! `loom_aggregate`: exact statistics of an index's values over a window, whole or by buckets of time.

use loom_engine::query::{AggregateRow, AggregateSpec, Bucket, Poll, Quantile, aggregate};
use loom_engine::schema::{FieldType, Source};
use loom_engine::{Key, Sum, ValueKind, ValueRange};

use super::arguments::{Ambient, Arguments, Parameter};
use super::columns::Column;
use super::datum::Interval;
use super::selection::{Selection, newest};
use super::stats;
use super::time::{TimeArguments, micros};
use super::types::{SqlType, of_numbers};
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "t_from",
        ty: SqlType::TimestampTz,
    },
    Parameter {
        name: "t_to",
        ty: SqlType::TimestampTz,
    },
    Parameter {
        name: "last",
        ty: SqlType::Interval,
    },
    Parameter {
        name: "bucket",
        ty: SqlType::Interval,
    },
    Parameter {
        name: "quantiles",
        ty: SqlType::F64List,
    },
    Parameter {
        name: "approx",
        ty: SqlType::Bool,
    },
    Parameter {
        name: "v_min",
        ty: SqlType::Any,
    },
    Parameter {
        name: "v_max",
        ty: SqlType::Any,
    },
    Parameter {
        name: "at",
        ty: SqlType::Any,
    },
];

const DAY_NANOS: i64 = 86_400_000_000_000;

pub struct AggregatePlan {
    selection: Selection,
    times: TimeArguments,
    bucket: Option<Bucket>,
    quantiles: Vec<Quantile>,
    approx: bool,
    columns: Vec<Column>,
    values: Values,
}

/// The index's values in SQL.
#[derive(Clone, Copy)]
struct Values {
    kind: ValueKind,
    /// None where the index only counts.
    ty: Option<FieldType>,
}

impl AggregatePlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<AggregatePlan> {
        let (selection, _, source) = Selection::bind(arguments, ambient)?;
        let times = arguments.times()?;
        times.range(None)?;
        let values = Values::of(&selection, &source)?;
        let quantiles = quantiles(arguments)?;
        let bucket = arguments.interval("bucket")?.map(bucket_of).transpose()?;
        Ok(AggregatePlan {
            columns: columns(bucket.is_some(), values, &quantiles),
            approx: arguments.boolean("approx")?.unwrap_or(false),
            selection,
            times,
            bucket,
            quantiles,
            values,
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let (snapshot, source) = self.selection.now()?;
        let chosen = self.selection.resolve(&source)?;
        let index = chosen
            .index
            .ok_or_else(|| Problem::binder("index must be given, and not NULL"))?;
        let newest = match self.times.last {
            Some(_) => newest(&snapshot, &source)?,
            None => None,
        };
        let spec = AggregateSpec {
            source: source.id,
            index: index.id,
            time: self.times.range(newest)?,
            value: chosen.range.unwrap_or(ValueRange::ALL),
            bucket: self.bucket,
            quantiles: self.quantiles.clone(),
            approx: self.approx,
        };
        let rows = aggregate(&snapshot, &spec, &Poll::new(ambient.stop))?;
        stats::remember(&self.selection.dir, &source.name, snapshot.stats());
        Ok(rows.iter().map(|row| self.values.cells(row)).collect())
    }
}

impl Values {
    fn of(selection: &Selection, source: &Source) -> Result<Values> {
        let chosen = selection.resolve(source)?;
        let index = chosen
            .index
            .ok_or_else(|| Problem::binder("index must be given, and not NULL"))?;
        let ty = index
            .value_field()
            .and_then(|field| source.fields.get(field))
            .map(|field| field.ty);
        Ok(Values {
            kind: index.kind,
            ty,
        })
    }

    fn value_type(self) -> SqlType {
        self.ty.map_or(SqlType::I64, of_numbers)
    }

    fn sum_type(self) -> SqlType {
        if self.kind == ValueKind::Float {
            SqlType::F64
        } else {
            SqlType::Huge
        }
    }

    fn cells(self, row: &AggregateRow) -> Vec<Cell> {
        let valued = self.ty.is_some() && row.count > 0;
        let mut cells = Vec::new();
        cells.extend(
            row.bucket
                .map(|start| Cell::Int(i128::from(micros(start.0)))),
        );
        cells.push(Cell::from(row.count));
        cells.push(if valued {
            self.sum(&row.sum)
        } else {
            Cell::Null
        });
        cells.push(self.value(row.min));
        cells.push(self.value(row.max));
        cells.push(if valued {
            Cell::Float(row.sum.to_f64() / row.count as f64)
        } else {
            Cell::Null
        });
        cells.extend(row.quantiles.iter().map(|quantile| self.value(*quantile)));
        cells
    }

    fn sum(self, sum: &Sum) -> Cell {
        match *sum {
            Sum::Int(value) => Cell::Int(value),
            Sum::Float { .. } => Cell::Float(sum.to_f64()),
        }
    }

    fn value(self, key: Option<Key>) -> Cell {
        let (Some(key), Some(ty)) = (key, self.ty) else {
            return Cell::Null;
        };
        match self.kind {
            ValueKind::Unsigned if ty == FieldType::Bool => Cell::Bool(key.to_u64() != 0),
            ValueKind::Unsigned => Cell::from(key.to_u64()),
            ValueKind::Signed => Cell::Int(i128::from(key.to_i64())),
            ValueKind::Float => Cell::Float(key.to_f64()),
        }
    }
}

fn columns(bucketed: bool, values: Values, quantiles: &[Quantile]) -> Vec<Column> {
    let mut columns = Vec::new();
    if bucketed {
        columns.push(Column::new("bucket", SqlType::TimestampTz));
    }
    columns.push(Column::new("count", SqlType::I64));
    columns.push(Column::new("sum", values.sum_type()));
    columns.push(Column::new("min", values.value_type()));
    columns.push(Column::new("max", values.value_type()));
    columns.push(Column::new("avg", SqlType::F64));
    columns.extend(
        quantiles
            .iter()
            .map(|quantile| Column::new(quantile.name(), values.value_type())),
    );
    columns
}

fn quantiles(arguments: &Arguments) -> Result<Vec<Quantile>> {
    let mut quantiles: Vec<Quantile> = Vec::new();
    for q in arguments.doubles("quantiles")?.unwrap_or_default() {
        let quantile =
            Quantile::new(q).map_err(|error| Problem::binder(format!("quantiles: {error}")))?;
        if quantiles
            .iter()
            .any(|known| known.name() == quantile.name())
        {
            return Err(Problem::binder(format!("quantiles: {q} is given twice")));
        }
        quantiles.push(quantile);
    }
    Ok(quantiles)
}

fn bucket_of(interval: Interval) -> Result<Bucket> {
    let refused = || {
        Problem::binder(
            "bucket takes a positive INTERVAL, either of months or of days and less, as time_bucket does",
        )
    };
    let nanos = i64::from(interval.days)
        .checked_mul(DAY_NANOS)
        .zip(interval.micros.checked_mul(1000))
        .and_then(|(days, rest)| days.checked_add(rest))
        .ok_or_else(refused)?;
    match (u32::try_from(interval.months), nanos) {
        (Ok(0), 1..) => Ok(Bucket::nanos(nanos)),
        (Ok(months @ 1..), 0) => Ok(Bucket::Months(months)),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_of_months_or_of_less() {
        let bucket = |months, days, micros| {
            bucket_of(Interval {
                months,
                days,
                micros,
            })
        };
        assert_eq!(bucket(0, 1, 5).unwrap(), Bucket::nanos(DAY_NANOS + 5000));
        assert_eq!(bucket(3, 0, 0).unwrap(), Bucket::Months(3));
        for refused in [
            bucket(1, 1, 0),
            bucket(0, 0, 0),
            bucket(0, -1, 0),
            bucket(-1, 0, 0),
            bucket(0, i32::MAX, 0),
        ] {
            assert!(refused.is_err());
        }
    }
}
