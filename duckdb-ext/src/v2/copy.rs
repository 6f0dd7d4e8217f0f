//! `COPY … TO 'dir' (FORMAT loom, …)` of C API v2: the callbacks of the format, and reading a query's vectors.

use duckdb_neo::column_data_collection::ColumnDataCollection;
use duckdb_neo::connection::Context;
use duckdb_neo::copy_function::{CopyFunctionBuilder, CopyToBindInfo, CopyToFunctionCallbacks};
use duckdb_neo::data_chunk::{DataChunk, DataChunkRef};
use duckdb_neo::extension::Extension;
use duckdb_neo::logical_type::{LogicalType, LogicalTypeID};
use duckdb_neo::types::{
    BlobValue, DateValue, HugeInt, TimestampMsValue, TimestampNsValue, TimestampSecValue,
    TimestampTzNsValue, TimestampTzValue, TimestampValue,
};
use duckdb_neo::vector::{Unknown, Vector, VectorElement};
use std::num::NonZeroUsize;

use loom_engine::query::Poll;
use loom_engine::schema::FieldValue;

use super::errors::{error, problem};
use super::table::{interrupted, within};
use super::value::{datum, logical_type};
use crate::error::{Callback, Problem, Result, guard};
use crate::exec::copy::{Encoded, Encoding, Storing, Values};
use crate::plan::copy::{ColumnType, CopyColumn, CopyPlan, FORMAT, is_itself};
use crate::plan::types::SqlType;

/// The rows that are encoded and stored at once.
const BATCH_ROWS: NonZeroUsize = NonZeroUsize::new(32_768).unwrap();

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    CopyFunctionBuilder::new(FORMAT, Copy).register(extension)
}

struct Copy;

/// A bound statement.
struct Bound {
    plan: CopyPlan,
    columns: Vec<Column>,
}

/// The way to read a column.
struct Column {
    ty: ColumnType,
    id: LogicalTypeID,
    /// The type to which DuckDB casts the column before it is read.
    cast: Option<LogicalType>,
}

impl CopyToFunctionCallbacks for Copy {
    type InitData = Storing;
    type BindData = Bound;
    type BatchData = Encoded;

    fn bind(&self, context: &Context, info: &CopyToBindInfo) -> duckdb_neo::Result<Bound> {
        within(Callback::Bind, context, |ambient| {
            let count = info.len().map_err(problem)?;
            let mut columns = Vec::with_capacity(count);
            let mut names = Vec::with_capacity(count);
            for at in 0..count {
                let (name, ty) = info.get_column(at).map_err(problem)?;
                let column = Column::of(name, &ty, context)?;
                names.push(CopyColumn {
                    name: name.to_owned(),
                    ty: column.ty,
                });
                columns.push(column);
            }
            let count = info.option_count().map_err(problem)?;
            let mut options = Vec::with_capacity(count);
            for at in 0..count {
                let (name, value) = info.get_option(at).map_err(problem)?;
                options.push((name.to_owned(), datum(&value, ambient.stop)?));
            }
            let dir = info.file_path().map_err(problem)?;
            let plan = CopyPlan::bind(&dir, &names, &options, ambient)?;
            Ok(Bound { plan, columns })
        })
    }

    fn init(&self, _: &Context, bound: &Bound, path: &str) -> duckdb_neo::Result<Storing> {
        guard(Callback::Init, || {
            if !is_itself(&bound.plan.dir, path) {
                return Err(Problem::binder(format!(
                    "COPY (FORMAT {FORMAT}) stores into one directory, not into '{path}'; omit PARTITION_BY, PER_THREAD_OUTPUT, FILE_SIZE_BYTES \
                     and USE_TMP_FILE"
                )));
            }
            Storing::open(&bound.plan)
        })
        .map_err(error)
    }

    fn batch(
        &self,
        context: &Context,
        bound: &Bound,
        _: &Storing,
        input: &ColumnDataCollection<'_>,
    ) -> duckdb_neo::Result<Encoded> {
        guard(Callback::Execute, || {
            let mut encoding = Encoding::new(&bound.plan);
            let mut scan = input.to_scan(context).map_err(problem)?;
            while let Some(chunk) = scan.next_chunk().map_err(problem)? {
                if interrupted(context) {
                    return Err(Problem::Interrupted);
                }
                bound.encode(context, &chunk, &mut encoding)?;
            }
            Ok(encoding.finish())
        })
        .map_err(error)
    }

    fn batch_size(&self, _: &Context, _: &Bound) -> duckdb_neo::Result<Option<NonZeroUsize>> {
        Ok(Some(BATCH_ROWS))
    }

    fn flush(
        &self,
        _: &Context,
        bound: &Bound,
        storing: &Storing,
        _: &ColumnDataCollection<'_>,
        encoded: &mut Encoded,
    ) -> duckdb_neo::Result<()> {
        guard(Callback::Execute, || storing.store(&bound.plan, encoded)).map_err(error)
    }

    fn finalize(
        &self,
        context: &Context,
        bound: &Bound,
        storing: &Storing,
    ) -> duckdb_neo::Result<()> {
        let stop = || interrupted(context);
        guard(Callback::Execute, || {
            storing.finish(&bound.plan, &Poll::new(&stop))
        })
        .map_err(error)
    }
}

impl Column {
    fn of(name: &str, ty: &LogicalType, context: &Context) -> Result<Column> {
        use LogicalTypeID as Id;
        let id = ty.id().map_err(problem)?;
        let cast_to = |ty, to: SqlType| {
            let cast = logical_type(context, to).map_err(problem)?;
            let id = cast.id().map_err(problem)?;
            Ok(Column {
                ty,
                id,
                cast: Some(cast),
            })
        };
        let as_it_is = |ty| Ok(Column { ty, id, cast: None });
        match id {
            Id::Boolean => as_it_is(ColumnType::Bool),
            Id::TinyInt => as_it_is(ColumnType::Signed(1)),
            Id::SmallInt => as_it_is(ColumnType::Signed(2)),
            Id::Integer => as_it_is(ColumnType::Signed(4)),
            Id::BigInt => as_it_is(ColumnType::Signed(8)),
            Id::UTinyInt => as_it_is(ColumnType::Unsigned(1)),
            Id::USmallInt => as_it_is(ColumnType::Unsigned(2)),
            Id::UInteger => as_it_is(ColumnType::Unsigned(4)),
            Id::UBigInt => as_it_is(ColumnType::Unsigned(8)),
            Id::HugeInt => as_it_is(ColumnType::Huge),
            Id::Float => as_it_is(ColumnType::F32),
            Id::Double => as_it_is(ColumnType::F64),
            Id::Varchar if ty.name().map_err(problem)?.eq_ignore_ascii_case("json") => {
                as_it_is(ColumnType::Json)
            }
            Id::Varchar => as_it_is(ColumnType::Text),
            Id::Blob => as_it_is(ColumnType::Blob),
            Id::TimestampSec => as_it_is(ColumnType::Time(1_000_000_000)),
            Id::TimestampMs => as_it_is(ColumnType::Time(1_000_000)),
            Id::Timestamp | Id::TimestampTz => as_it_is(ColumnType::Time(1000)),
            Id::TimestampNs | Id::TimestampTzNs => as_it_is(ColumnType::Time(1)),
            Id::Date => as_it_is(ColumnType::Time(86_400_000_000_000)),
            // A decimal of up to fifteen digits survives a conversion to f64.
            Id::Decimal => match digits(ty)? {
                [..=18, 0] => cast_to(ColumnType::Signed(8), SqlType::I64),
                [..=15, _] => cast_to(ColumnType::F64, SqlType::F64),
                _ => cast_to(ColumnType::Text, SqlType::Text),
            },
            Id::UHugeInt => cast_to(ColumnType::Huge, SqlType::Huge),
            Id::Struct | Id::List | Id::Map | Id::Array | Id::Union | Id::Variant | Id::Tuple => {
                let json = LogicalType::from_text(context, "JSON").map_err(|error| {
                    Problem::binder(format!(
                        "column '{name}' is nested and becomes JSON, which needs DuckDB's extension json: {}",
                        error.message
                    ))
                })?;
                Ok(Column {
                    ty: ColumnType::Json,
                    id: Id::Varchar,
                    cast: Some(json),
                })
            }
            Id::SqlNull => Err(Problem::binder(format!(
                "column '{name}' has no type; cast it: NULL::VARCHAR AS {name}"
            ))),
            _ => cast_to(ColumnType::Text, SqlType::Text),
        }
    }

    fn read<'a>(
        &self,
        vector: &'a Vector<'a, Unknown>,
        time: Option<i64>,
        bad: &mut Vec<(usize, String)>,
    ) -> Result<Values<'a>> {
        use LogicalTypeID as Id;
        if let Some(unit) = time {
            return self.times(vector, unit, bad);
        }
        match self.id {
            Id::Boolean => fields::<bool>(vector, |value: &bool| FieldValue::Bool(*value)),
            Id::TinyInt => fields::<i8>(vector, |value: &i8| FieldValue::I64((*value).into())),
            Id::SmallInt => fields::<i16>(vector, |value: &i16| FieldValue::I64((*value).into())),
            Id::Integer => fields::<i32>(vector, |value: &i32| FieldValue::I64((*value).into())),
            Id::BigInt => fields::<i64>(vector, |value: &i64| FieldValue::I64(*value)),
            Id::UTinyInt => fields::<u8>(vector, |value: &u8| FieldValue::U64((*value).into())),
            Id::USmallInt => fields::<u16>(vector, |value: &u16| FieldValue::U64((*value).into())),
            Id::UInteger => fields::<u32>(vector, |value: &u32| FieldValue::U64((*value).into())),
            Id::UBigInt => fields::<u64>(vector, |value: &u64| FieldValue::U64(*value)),
            Id::Float => fields::<f32>(vector, |value: &f32| FieldValue::F64((*value).into())),
            Id::Double => fields::<f64>(vector, |value: &f64| FieldValue::F64(*value)),
            Id::Varchar => {
                fields::<String>(vector, |value: &'a str| FieldValue::Bytes(value.as_bytes()))
            }
            Id::Blob => fields::<BlobValue>(vector, |value: &'a [u8]| FieldValue::Bytes(value)),
            Id::HugeInt => {
                let reader = vector.cast_ref::<HugeInt>().map_err(problem)?;
                let reader = reader.reader().map_err(problem)?;
                let mut field = |(row, value): (usize, Option<&HugeInt>)| {
                    let Some(huge) = value else {
                        return FieldValue::Null;
                    };
                    let value = i128::from(huge.upper) << 64 | i128::from(huge.lower);
                    match (i64::try_from(value), u64::try_from(value)) {
                        (Ok(value), _) => FieldValue::I64(value),
                        (_, Ok(value)) => FieldValue::U64(value),
                        _ => {
                            bad.push((row, format!("{value} needs more than 64 bits")));
                            FieldValue::Null
                        }
                    }
                };
                let fields = reader.iter().enumerate().map(&mut field).collect();
                Ok(Values::Fields(fields))
            }
            _ => {
                let ColumnType::Time(unit) = self.ty else {
                    return Err(Problem::missing("a type that is known"));
                };
                let Values::Times(times) = self.times(vector, unit, bad)? else {
                    return Err(Problem::missing("times"));
                };
                let field = |time: Option<i64>| time.map_or(FieldValue::Null, FieldValue::I64);
                Ok(Values::Fields(times.into_iter().map(field).collect()))
            }
        }
    }

    /// Converts numbers of this unit to nanoseconds.
    fn times<'a>(
        &self,
        vector: &'a Vector<'a, Unknown>,
        unit: i64,
        bad: &mut Vec<(usize, String)>,
    ) -> Result<Values<'a>> {
        use LogicalTypeID as Id;
        let numbers: Vec<Option<i128>> = match self.id {
            Id::TinyInt => numbers::<i8>(vector, |value| (*value).into()),
            Id::SmallInt => numbers::<i16>(vector, |value| (*value).into()),
            Id::Integer => numbers::<i32>(vector, |value| (*value).into()),
            Id::BigInt => numbers::<i64>(vector, |value| (*value).into()),
            Id::UTinyInt => numbers::<u8>(vector, |value| (*value).into()),
            Id::USmallInt => numbers::<u16>(vector, |value| (*value).into()),
            Id::UInteger => numbers::<u32>(vector, |value| (*value).into()),
            Id::UBigInt => numbers::<u64>(vector, |value| (*value).into()),
            Id::TimestampSec => numbers::<TimestampSecValue>(vector, |value| value.0.into()),
            Id::TimestampMs => numbers::<TimestampMsValue>(vector, |value| value.0.into()),
            Id::Timestamp => numbers::<TimestampValue>(vector, |value| value.0.into()),
            Id::TimestampTz => numbers::<TimestampTzValue>(vector, |value| value.0.into()),
            Id::TimestampNs => numbers::<TimestampNsValue>(vector, |value| value.0.into()),
            Id::TimestampTzNs => numbers::<TimestampTzNsValue>(vector, |value| value.0.into()),
            Id::Date => numbers::<DateValue>(vector, |value| value.0.into()),
            _ => Err(Problem::missing("a type of times that is known")),
        }?;
        let is_stamp = matches!(self.ty, ColumnType::Time(_));
        let is_infinite = |number: i128| {
            let most = i128::from(match self.id {
                Id::Date => i64::from(i32::MAX),
                _ => i64::MAX,
            });
            is_stamp && (number >= most || number <= -most)
        };
        let mut times = Vec::with_capacity(numbers.len());
        for (row, number) in numbers.into_iter().enumerate() {
            let time = number.map(|number| (number, i64::try_from(number * i128::from(unit))));
            times.push(match time {
                None => None,
                Some((number, Ok(time))) if !is_infinite(number) => Some(time),
                Some(_) => {
                    bad.push((
                        row,
                        "its time is not between 1677-09-21 and 2262-04-11".to_owned(),
                    ));
                    None
                }
            });
        }
        Ok(Values::Times(times))
    }
}

fn fields<'a, T: VectorElement + 'a>(
    vector: &'a Vector<'a, Unknown>,
    value: impl Fn(T::Ref<'a>) -> FieldValue<'a>,
) -> Result<Values<'a>> {
    let reader = vector.cast_ref::<T>().map_err(problem)?;
    let reader = reader.reader().map_err(problem)?;
    let fields = reader.iter();
    let fields = fields.map(|read| read.map_or(FieldValue::Null, &value));
    Ok(Values::Fields(fields.collect()))
}

fn numbers<'a, T: VectorElement + 'a>(
    vector: &'a Vector<'a, Unknown>,
    number: impl Fn(T::Ref<'a>) -> i128,
) -> Result<Vec<Option<i128>>> {
    let reader = vector.cast_ref::<T>().map_err(problem)?;
    let reader = reader.reader().map_err(problem)?;
    Ok(reader.iter().map(|read| read.map(&number)).collect())
}

/// The digits of a DECIMAL, and how many of them follow the point.
fn digits(ty: &LogicalType) -> Result<[i64; 2]> {
    let parameter = |at| {
        let (_, value) = ty.get_param(at).map_err(problem)?;
        let number = value.get::<i64>().ok().flatten();
        number.ok_or_else(|| Problem::missing("the digits of a DECIMAL"))
    };
    Ok([parameter(0)?, parameter(1)?])
}

impl Bound {
    fn encode(
        &self,
        context: &Context,
        chunk: &DataChunkRef<'_>,
        encoding: &mut Encoding<'_>,
    ) -> Result<()> {
        let rows = chunk.row_count().map_err(problem)?;
        let casts = self.columns.iter().filter_map(|column| column.cast.clone());
        let casts: Vec<LogicalType> = casts.collect();
        let mut room = match casts.as_slice() {
            [] => None,
            casts => Some(DataChunk::create(context, casts, true).map_err(problem)?),
        };
        if let Some(room) = &mut room {
            let columns = self.columns.iter().enumerate();
            let cast = columns.filter(|(_, column)| column.cast.is_some());
            for (to, (from, _)) in cast.enumerate() {
                let source = chunk.get_vector_at::<Unknown>(from).map_err(problem)?;
                let target = room.get_vector_at_mut::<Unknown>(to).map_err(problem)?;
                target.cast_rows(source, context).map_err(problem)?;
            }
        }
        let mut bad = Vec::new();
        let mut values = Vec::with_capacity(self.columns.len());
        let mut cast = 0;
        for (at, column) in self.columns.iter().enumerate() {
            let vector = match (&column.cast, &room) {
                (Some(_), Some(room)) => {
                    cast += 1;
                    room.get_vector_at::<Unknown>(cast - 1)
                }
                _ => chunk.get_vector_at::<Unknown>(at),
            };
            let time = self.plan.time.filter(|(time, _)| *time == at);
            let time = time.map(|(_, unit)| unit);
            values.push(column.read(vector.map_err(problem)?, time, &mut bad)?);
        }
        bad.sort_by_key(|(row, _)| *row);
        encoding.take(rows, &values, &bad)
    }
}
