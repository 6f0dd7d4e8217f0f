//! C API v2 (DuckDB 2.0): `WHERE` clauses prune, scans are parallel and keep their order, settings exist.

mod attach;
mod errors;
mod expression;
mod macros;
mod replacement;
mod settings;
mod table;
mod value;
mod vectors;

use duckdb_neo::duckdb_entrypoint_c_api_v2;
use duckdb_neo::extension::Extension;

use crate::error::{Callback, guard};
use crate::plan::access::confine;
use errors::{error, problem};

#[duckdb_entrypoint_c_api_v2(extension_name = "loom", api_version = "v2.0.0")]
fn load(extension: &Extension) -> duckdb_neo::Result<()> {
    let register = || {
        confine().map_err(error)?;
        settings::register_all(extension)?;
        table::register_all(extension)?;
        replacement::register_all(extension)?;
        attach::register_all(extension)?;
        macros::register_all(extension);
        Ok(())
    };
    guard(Callback::Load, || register().map_err(problem)).map_err(error)
}
