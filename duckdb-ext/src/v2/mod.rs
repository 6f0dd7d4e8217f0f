//! C API v2 (DuckDB 2.0): `WHERE` clauses prune, scans are parallel and keep their order, and there are settings.

mod attach;
mod bins;
mod call;
#[cfg(target_os = "linux")]
mod copy;
mod dictionary;
mod errors;
mod expression;
mod host;
mod macros;
mod replacement;
mod settings;
mod table;
mod value;
mod vectors;

use std::error::Error;

use duckdb_neo::extension::Extension;

use crate::error::{Callback, guard};
use crate::plan::access::confine;
use crate::plan::cache::check_environment;
use errors::{error, problem};

fn load(extension: &Extension) -> Result<(), Box<dyn Error>> {
    let register = || {
        confine().map_err(error)?;
        check_environment().map_err(error)?;
        settings::register_all(extension)?;
        table::register_all(extension)?;
        bins::register_all(extension)?;
        replacement::register_all(extension)?;
        attach::register_all(extension)?;
        #[cfg(target_os = "linux")]
        copy::register_all(extension)?;
        macros::register_all(extension);
        Ok(())
    };
    guard(Callback::Load, || register().map_err(problem)).map_err(|problem| error(problem).into())
}
