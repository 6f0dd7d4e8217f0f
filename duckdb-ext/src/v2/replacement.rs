//! Replacement scans of C API v2: `FROM 'run.loom/requests'`.

use duckdb_neo::ToValue;
use duckdb_neo::connection::Context;
use duckdb_neo::extension::Extension;
use duckdb_neo::qualified_name::QualifiedName;
use duckdb_neo::replacement_scan::{
    ReplacementHandle, ReplacementScanBuilder, ReplacementScanCallbacks, ReplacementType,
};

use super::errors::{error, problem};
use crate::error::{Callback, guard};
use crate::plan::replacement;

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    ReplacementScanBuilder::new(Sources).register(extension)
}

struct Sources;

impl ReplacementScanCallbacks for Sources {
    fn scan(
        &self,
        context: &Context,
        name: &QualifiedName,
        reference: ReplacementHandle<'_>,
    ) -> duckdb_neo::Result<()> {
        let replace = || {
            // A name without quotes arrives in parts.
            let Some(found) = replacement::of(&name.parts()?.join(".")) else {
                return Ok(());
            };
            reference.set_reference(ReplacementType::Table(found.function.try_into()?))?;
            for argument in &found.arguments {
                reference.add_parameter(argument.as_str().value(context)?)?;
            }
            reference.set_alias(&found.alias)
        };
        guard(Callback::Replace, || replace().map_err(problem)).map_err(error)
    }
}
