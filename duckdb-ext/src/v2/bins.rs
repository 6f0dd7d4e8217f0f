//! Registers the functions of bins with C API v2. Every callback catches its own panics, as those of table functions do.

use duckdb_neo::aggregate::{
    AggregateCallbacks, AggregateFunctionBuilder, ReturnTypeHandle, States,
};
use duckdb_neo::bind_arguments::BindArguments;
use duckdb_neo::connection::Context;
use duckdb_neo::data_chunk::VectorCollection;
use duckdb_neo::enums::AggregateFunctionProperty;
use duckdb_neo::extension::Extension;
use duckdb_neo::scalar::{ScalarCallbacks, ScalarFunctionBuilder};
use duckdb_neo::signature::{
    FunctionDocumentationBuilder, FunctionParameter, FunctionParameterKind, SignatureBuilder,
};
use duckdb_neo::types::{BlobValue, List};
use duckdb_neo::vector::{StorageKind, Unknown, Vector, VectorElement, WritableVectorElement};

use super::errors::{error, problem};
use super::value::logical_type;
use super::vectors::write_lists;
use crate::error::{Callback, Result, guard};
use crate::exec::bins::Bins;
use crate::exec::{bins_blob, bins_rows};
use crate::plan::bins::{BINS_FUNCTIONS, BinsFunction, Form, Input, Question, Work};

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    for function in BINS_FUNCTIONS {
        for form in function.forms {
            register(extension, function, form)?;
        }
    }
    Ok(())
}

fn register(extension: &Extension, function: &BinsFunction, form: &Form) -> duckdb_neo::Result<()> {
    let docs = FunctionDocumentationBuilder::new()
        .description(function.documentation(form))
        .add_category("loom");
    let docs = function
        .examples
        .iter()
        .fold(docs, |docs, example| docs.add_example("", *example));
    let mut signature = SignatureBuilder::new()
        .documentation(docs)
        .return_type(logical_type(extension, form.returns)?);
    for parameter in form.parameters {
        let ty = logical_type(extension, parameter.ty)?;
        let parameter = FunctionParameter::with_type(parameter.name, ty);
        signature = signature.param(parameter.kind(FunctionParameterKind::PositionalOnly));
    }
    match form.work {
        Work::Gather(input) => {
            AggregateFunctionBuilder::new(function.name, signature, Gather(input))
                .set_property(AggregateFunctionProperty::AggregateOrderDependent(false))
                .register(extension)
        }
        Work::Ask(question) => {
            ScalarFunctionBuilder::new(function.name, signature, Ask(question)).register(extension)
        }
    }
}

/// An argument in a form that has rows in memory, which sequences do not have.
fn readable<T: VectorElement>(vector: Vector<'_, Unknown>, rows: usize) -> Result<Vector<'_, T>> {
    let mut vector = vector.cast::<T>().map_err(problem)?;
    // The elements of a list may be such a vector too.
    if vector.storage_kind() == StorageKind::Other || vector.children().is_some() {
        vector.flatten().map_err(problem)?;
    }
    assert_eq!(vector.len(), rows, "the rows of an argument");
    Ok(vector)
}

fn first<T: VectorElement>(vectors: &mut VectorCollection) -> Result<Vector<'_, T>> {
    let rows = vectors.row_count().map_err(problem)?;
    let vector = vectors.get_untyped_vector_at_mut(0).map_err(problem)?;
    readable(vector, rows)
}

fn pair<A: VectorElement, B: VectorElement>(
    vectors: &mut VectorCollection,
) -> Result<(Vector<'_, A>, Vector<'_, B>)> {
    let rows = vectors.row_count().map_err(problem)?;
    let [first, second] = vectors.get_vector_array_mut([0, 1]).map_err(problem)?;
    Ok((readable(first, rows)?, readable(second, rows)?))
}

struct Gather(Input);

impl AggregateCallbacks for Gather {
    type BindData = ();
    type StateItem = Bins;

    fn bind(
        &self,
        _: &Context,
        _: BindArguments<'_>,
        _: ReturnTypeHandle<'_>,
    ) -> duckdb_neo::Result<()> {
        Ok(())
    }

    fn init(&self, _: Option<&()>) -> Bins {
        Bins::default()
    }

    fn update(
        &self,
        _: Option<&()>,
        vectors: &mut VectorCollection,
        mut groups: States<'_, Bins>,
    ) -> duckdb_neo::Result<()> {
        guard(Callback::Update, || match self.0 {
            Input::Value => {
                let values = first::<f64>(vectors)?;
                let values = values.reader().map_err(problem)?;
                bins_rows::count_values(values.iter().map(Option::<&f64>::copied), &mut groups)
            }
            Input::Repeated => {
                let (values, times) = pair::<f64, i64>(vectors)?;
                let values = values.reader().map_err(problem)?;
                let times = times.reader().map_err(problem)?;
                bins_rows::count_repeated(
                    values.iter().map(Option::<&f64>::copied),
                    times.iter().map(Option::<&i64>::copied),
                    &mut groups,
                )
            }
            Input::Bins => {
                let blobs = first::<BlobValue>(vectors)?;
                let blobs = blobs.reader().map_err(problem)?;
                bins_rows::merge_blobs(blobs.iter(), &mut groups)
            }
        })
        .map_err(error)
    }

    fn combine(
        &self,
        _: Option<&()>,
        sources: &States<'_, Bins>,
        mut targets: States<'_, Bins>,
    ) -> duckdb_neo::Result<()> {
        guard(Callback::Combine, || {
            bins_rows::combine(targets.len(), sources, &mut targets)
        })
        .map_err(error)
    }

    fn finalize(
        &self,
        _: Option<&()>,
        groups: &[&Bins],
        output: Vector<'_, Unknown>,
        offset: usize,
    ) -> duckdb_neo::Result<()> {
        guard(Callback::Finalize, || {
            let mut output = output.cast::<BlobValue>().map_err(problem)?;
            let mut writer = output.writer().map_err(problem)?;
            for (row, bins) in (offset..).zip(groups) {
                let bytes = bins_blob::write(bins);
                writer.set(row, bytes.as_deref()).map_err(problem)?;
            }
            Ok(())
        })
        .map_err(error)
    }
}

struct Ask(Question);

impl ScalarCallbacks for Ask {
    type BindData = ();
    type InitData = ();

    fn exec(
        &self,
        _: Option<&()>,
        _: Option<&mut ()>,
        _: &Context,
        vectors: &mut VectorCollection,
        output: Vector<'_, Unknown>,
    ) -> duckdb_neo::Result<()> {
        guard(Callback::Evaluate, || match self.0 {
            Question::Count => {
                let blobs = first::<BlobValue>(vectors)?;
                let blobs = blobs.reader().map_err(problem)?;
                write(output, &bins_rows::counts(blobs.iter())?)
            }
            Question::Quantile => {
                let (blobs, fractions) = pair::<BlobValue, f64>(vectors)?;
                let blobs = blobs.reader().map_err(problem)?;
                let fractions = fractions.reader().map_err(problem)?;
                let fractions = fractions.iter().map(Option::<&f64>::copied);
                write(output, &bins_rows::quantiles(blobs.iter(), fractions)?)
            }
            Question::Quantiles => {
                let (blobs, lists) = pair::<BlobValue, List<f64>>(vectors)?;
                let blobs = blobs.reader().map_err(problem)?;
                let lists = lists.reader().map_err(problem)?;
                let lists = lists
                    .iter()
                    .map(|list| Some(list?.iter().map(Option::<&f64>::copied).collect()));
                let answers = bins_rows::quantile_lists(blobs.iter(), lists)?;
                write_lists(output, answers)
            }
        })
        .map_err(error)
    }
}

fn write<T>(output: Vector<'_, Unknown>, rows: &[Option<T>]) -> Result<()>
where
    T: Copy + for<'a> WritableVectorElement<Write<'a> = T>,
{
    let mut output = output.cast::<T>().map_err(problem)?;
    output.set_size(rows.len()).map_err(problem)?;
    let mut writer = output.writer().map_err(problem)?;
    for (row, value) in rows.iter().enumerate() {
        writer.set(row, *value).map_err(problem)?;
    }
    Ok(())
}
