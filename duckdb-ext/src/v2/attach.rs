//! `PRAGMA loom_attach('dir' [, 'name'] [, archive = 'path'])` of C API v2: DuckDB runs the returned statements in its place.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use duckdb_neo::bind_arguments::BindArguments;
use duckdb_neo::connection::Context;
use duckdb_neo::extension::Extension;
use duckdb_neo::pragma_function::{PragmaFunctionBuilder, PragmaQueryCallbacks};
use duckdb_neo::signature::{FunctionDocumentationBuilder, FunctionParameter, SignatureBuilder};

use super::errors::problem;
use super::table::within;
use super::value::{datum, logical_type};
use crate::error::{Callback, Problem};
use crate::plan::arguments::Arguments;
use crate::plan::attach::{ARCHIVE, AttachPlan, NAME, ViewName};
use crate::plan::parameters::{DIR, Parameter};

const PARAMETERS: [Parameter; 3] = [DIR, NAME, ARCHIVE];

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    let mut description = "Attach an in-memory catalog with a view for each source of a Loom directory. Run it again to see new sources.".to_owned();
    for parameter in PARAMETERS {
        description.push_str(&format!("\n{}: {}", parameter.name, parameter.about));
    }
    let docs = FunctionDocumentationBuilder::new()
        .description(description)
        .add_example("", "PRAGMA loom_attach('demo.loom')")
        .add_example("", "PRAGMA loom_attach('demo.loom', 'yesterday')")
        .add_example(
            "",
            "PRAGMA loom_attach('demo.loom', archive = '/mnt/archive/demo')",
        )
        .add_category("loom");
    let mut signature = SignatureBuilder::new().documentation(docs);
    for parameter in PARAMETERS {
        let ty = logical_type(extension, parameter.ty)?;
        let default = parameter.omitted.map(str::to_owned);
        signature = signature
            .param(FunctionParameter::with_type(parameter.name, ty).default_value(default));
    }
    PragmaFunctionBuilder::query("loom_attach", signature, Attach::default()).register(extension)
}

/// The state of one database instance.
#[derive(Default)]
struct Attach {
    /// Every view that was created, by catalog. Views of these whose source no longer exists are dropped.
    made: Mutex<HashMap<String, BTreeSet<ViewName>>>,
}

impl PragmaQueryCallbacks for Attach {
    fn query(&self, context: &Context, given: BindArguments<'_>) -> duckdb_neo::Result<String> {
        within(Callback::Attach, context, |ambient| {
            let mut arguments = Arguments::of("loom_attach", &[DIR]);
            for (at, parameter) in PARAMETERS.iter().enumerate() {
                let value = given.value(at).map_err(problem)?;
                let value = value.ok_or_else(|| Problem::not_constant(parameter.name))?;
                arguments.set(parameter.name, datum(&value, ambient.stop)?);
            }
            let attachment = AttachPlan::bind(&arguments, ambient)?;
            let views = attachment.views(ambient)?;
            let now: BTreeSet<ViewName> = views.iter().map(|(view, _)| view.clone()).collect();
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            let made = made.entry(attachment.catalog.to_lowercase()).or_default();
            let gone: Vec<ViewName> = made.difference(&now).cloned().collect();
            made.extend(now);
            Ok(attachment.script(&views, &gone))
        })
    }
}
