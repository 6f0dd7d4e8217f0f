//! Registers each table function with C API v2 and forwards its callbacks. Every callback catches its own panics, because the binding would
//! turn a panic into an error that ends the user's instance.

use duckdb_neo::bind_arguments::BindArgument;
use duckdb_neo::connection::Context;
use duckdb_neo::data_chunk::DataChunkRef;
use duckdb_neo::error::DuckDBError;
use duckdb_neo::extension::Extension;
use duckdb_neo::file::FileSystem;
use duckdb_neo::signature::{
    FunctionDocumentationBuilder, FunctionParameter, FunctionParameterKind, SignatureBuilder,
};
use duckdb_neo::table_function::{
    BindFunctionHandle, ExecColumnInfo, InitColumnData, OrderPreservation, PartitionData,
    PushdownData, TableFilterPushdownCallbacks, TableFunctionBuilder, TableFunctionCallbacks,
    TablePartitioningCallbacks,
};

use super::dictionary::Importer;
use super::errors::{error, problem};
use super::expression::Reader;
use super::host;
use super::settings;
use super::value::{datum, logical_type, texts_by_text};
use super::vectors::Vectors;
use crate::error::{Callback, Problem, Result, guard};
use crate::exec::run::Worker;
use crate::plan::ambient::Ambient;
use crate::plan::arguments::Arguments;
use crate::plan::clause::Clause;
use crate::plan::function::{Bound, Function, Plan, Running};
use crate::plan::functions::FUNCTIONS;
use crate::plan::parameters::Parameter;
use crate::plan::types::SqlType;

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    for function in FUNCTIONS {
        register(extension, function, function.positional)?;
        // The directory may be omitted if a setting or the environment names it.
        if let [first, rest @ ..] = function.positional
            && first.name == "dir"
        {
            register(extension, function, rest)?;
        }
    }
    Ok(())
}

fn register(
    extension: &Extension,
    function: &'static Function,
    positional: &'static [Parameter],
) -> duckdb_neo::Result<()> {
    let mut signature = SignatureBuilder::new();
    // DuckDB finds a description by the positional parameters of the overload. If named parameters prevent that, it shows the only
    // description of the function with all overloads.
    if function.named.is_empty() || positional.len() == function.positional.len() {
        let docs = FunctionDocumentationBuilder::new()
            .description(function.documentation())
            .add_category("loom");
        let with_examples = function
            .examples
            .iter()
            .fold(docs, |docs, example| docs.add_example("", *example));
        signature = signature.documentation(with_examples);
    }
    for parameter in positional {
        let ty = logical_type(extension, parameter.ty)?;
        let parameter = FunctionParameter::with_type(parameter.name, ty);
        signature = signature.param(parameter.kind(FunctionParameterKind::PositionalOnly));
    }
    for parameter in function.named {
        let ty = match parameter.ty {
            // DuckDB does not cast a STRUCT to a MAP, and the function takes both.
            SqlType::TextMap => SqlType::Any,
            ty => ty,
        };
        let ty = logical_type(extension, ty)?;
        let omitted = parameter.omitted.map(str::to_owned);
        let parameter = FunctionParameter::with_type(parameter.name, ty).default_value(omitted);
        signature = signature.param(parameter.kind(FunctionParameterKind::Named));
    }
    TableFunctionBuilder::new(
        function.name,
        signature,
        Callbacks {
            function,
            positional,
        },
    )
    .with_projection_pushdown(true)
    .with_filter_pushdown()
    .with_partitioning()
    .with_progress()
    .register(extension)
}

/// The state of one thread of a query.
struct Local {
    worker: Box<dyn Worker>,
    importer: Importer,
}

struct Callbacks {
    function: &'static Function,
    /// The positional parameters of this overload.
    positional: &'static [Parameter],
}

/// Runs a callback with its surroundings.
pub fn within<T>(
    callback: Callback,
    context: &Context,
    body: impl FnOnce(&Ambient<'_>) -> Result<T>,
) -> duckdb_neo::Result<T> {
    let stop = || interrupted(context);
    let ambient = Ambient {
        file: host::file(),
        views_grow: true,
        loom_dir: &|| settings::loom_dir(context),
        stop: &stop,
        threads: &|| settings::threads(context),
        access: settings::access(context),
    };
    guard(callback, || body(&ambient)).map_err(error)
}

/// Whether the user has interrupted the query. The API has no call for that, but this call checks it first.
pub fn interrupted(context: &Context) -> bool {
    match FileSystem::new(context).and_then(|files| files.glob("")) {
        Ok(_) => false,
        Err(error) => error.code == DuckDBError::RuntimeInterrupt,
    }
}

fn projection(columns: &InitColumnData<'_>) -> Result<Vec<usize>> {
    let count = columns.count().map_err(problem)?;
    (0..count)
        .map(|at| columns.get_column_index(at).map_err(problem))
        .collect()
}

impl TableFunctionCallbacks for Callbacks {
    type BindData = Bound;
    type LocalState = Local;
    type GlobalState = Running;

    fn bind(
        &self,
        context: &Context,
        given: Vec<BindArgument>,
        handle: BindFunctionHandle<'_>,
    ) -> duckdb_neo::Result<Bound> {
        within(Callback::Bind, context, |ambient| {
            settings::allow_cache(context);
            let mut arguments = Arguments::of(self.function.name, self.function.positional);
            for (parameter, argument) in self
                .positional
                .iter()
                .chain(self.function.named)
                .zip(&given)
            {
                let value = argument.value.as_ref();
                let value = value.ok_or_else(|| Problem::not_constant(parameter.name))?;
                let datum = match parameter.ty {
                    SqlType::TextMap => texts_by_text(value, context, ambient.stop)?,
                    _ => datum(value, ambient.stop)?,
                };
                arguments.set(parameter.name, datum);
            }
            let bound = (self.function.bind)(&arguments, ambient)?;
            declare(context, &*bound, &handle).map_err(problem)?;
            Ok(bound)
        })
    }

    fn init_global_state(
        &self,
        bound: &Bound,
        context: &Context,
        columns: InitColumnData<'_>,
    ) -> duckdb_neo::Result<(Option<Running>, Option<usize>)> {
        within(Callback::Init, context, |ambient| {
            let running = Running::start(&**bound, &projection(&columns)?, ambient)?;
            let threads = running.threads();
            Ok((Some(running), Some(threads)))
        })
    }

    fn init_local_state(
        &self,
        _: &Bound,
        running: Option<&Running>,
        _: &Context,
        _: InitColumnData<'_>,
    ) -> duckdb_neo::Result<Option<Local>> {
        let local = |running: &Running| Local {
            worker: running.worker(),
            importer: Importer::default(),
        };
        guard(Callback::InitLocal, || Ok(running.map(local))).map_err(error)
    }

    fn exec(
        &self,
        _: &Bound,
        running: Option<&Running>,
        local: Option<&mut Local>,
        context: &Context,
        output: DataChunkRef<'_>,
        _: ExecColumnInfo<'_>,
    ) -> duckdb_neo::Result<()> {
        let stop = || interrupted(context);
        guard(Callback::Execute, || {
            let running = running.ok_or_else(|| Problem::missing("global state"))?;
            let local = local.ok_or_else(|| Problem::missing("local state"))?;
            let mut vectors = Vectors::new(context, &mut local.importer, &output);
            running.fill(&mut *local.worker, &mut vectors, &stop)
        })
        .map_err(error)
    }

    fn progress(
        &self,
        _: &Bound,
        running: Option<&Running>,
        _: &Context,
    ) -> duckdb_neo::Result<Option<f64>> {
        // An error here would only reach the progress bar.
        Ok(guard(Callback::Progress, || Ok(running.map(Running::progress))).unwrap_or(None))
    }
}

/// Declares the columns. The number of rows is never declared exact, because DuckDB would take it as an upper bound and the log grows.
fn declare(
    context: &Context,
    bound: &dyn Plan,
    handle: &BindFunctionHandle<'_>,
) -> duckdb_neo::Result<()> {
    for column in bound.columns() {
        handle.add_result_column(&column.name, &logical_type(context, column.ty)?)?;
    }
    if let Some(rows) = bound.rows_estimate() {
        handle.set_cardinality(rows as usize, false)?;
    }
    handle.set_order(OrderPreservation::Insertion)
}

impl TableFilterPushdownCallbacks for Callbacks {
    /// Remembers the filters and accepts none, so DuckDB keeps checking every row.
    fn pushdown_filter(
        &self,
        bound: &Bound,
        context: &Context,
        offered: PushdownData<'_>,
    ) -> duckdb_neo::Result<()> {
        guard(Callback::Pushdown, || {
            if !bound.prunes() || !settings::pushdown(context) {
                return Ok(());
            }
            let reader = Reader {
                column: &|reference| offered.get_column_index(reference).ok(),
                // A function that returns no records has no count to weigh a long list against.
                records: bound.rows_estimate().unwrap_or(0),
                gregorian: settings::has_gregorian_years(context),
                stop: &|| interrupted(context),
            };
            let count = offered.filter_count().map_err(problem)?;
            let filters = (0..count).map(|at| match offered.filter(at) {
                Ok(filter) => reader.read(&filter),
                Err(_) => Clause::Opaque,
            });
            let filter = Clause::And(filters.collect());
            // DuckDB forgets an interrupt between planning and running.
            if interrupted(context) {
                return Err(Problem::Interrupted);
            }
            bound.offer(filter);
            Ok(())
        })
        .map_err(error)
    }
}

impl TablePartitioningCallbacks for Callbacks {
    fn partition_data(
        &self,
        _: &Bound,
        _: Option<&Running>,
        local: Option<&mut Local>,
        _: &Context,
        _: PartitionData<'_>,
    ) -> duckdb_neo::Result<usize> {
        guard(Callback::Partition, || {
            let local = local.ok_or_else(|| Problem::missing("local state"))?;
            Ok(local.worker.batch() as usize)
        })
        .map_err(error)
    }
}
