//! C API v1 (DuckDB 1.2 and later): named parameters prune. The whole adapter calls C, so any of its files may contain `unsafe`.

mod bins;
mod groups;
mod replacement;
mod table;
mod value;
mod vectors;

use std::ffi::CStr;
use std::mem::zeroed;
use std::ptr::null_mut;

use duckdb::ffi;

use crate::error::{Callback, Problem, Result, guard};
use crate::plan::access::confine;
use crate::plan::cache;

/// The oldest DuckDB that has all functions used here.
const API_VERSION: &str = "v1.2.0";

/// DuckDB calls this when it loads the file made for C API v1.
///
/// # Safety
///
/// Only DuckDB may call this, with its own arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn loom_init_c_api(
    info: ffi::duckdb_extension_info,
    access: *const ffi::duckdb_extension_access,
) -> bool {
    // SAFETY: DuckDB passes a live table of functions.
    let Some(access) = (unsafe { access.as_ref() }) else {
        return false;
    };
    // SAFETY: the arguments are DuckDB's own.
    let outcome = guard(Callback::Load, || unsafe { load(info, access) });
    if let Err(problem) = &outcome
        && let Some(set_error) = access.set_error
    {
        // SAFETY: DuckDB copies the text.
        unsafe { set_error(info, table::text(&problem.to_string()).as_ptr()) };
    }
    outcome.unwrap_or(false)
}

/// Registers everything through a connection that is closed again, because an open one would hold the user's database open.
///
/// # Safety
///
/// The caller passes DuckDB's own arguments, as for [`loom_init_c_api`].
unsafe fn load(
    info: ffi::duckdb_extension_info,
    access: &ffi::duckdb_extension_access,
) -> Result<bool> {
    confine()?;
    cache::check_environment()?;
    // SAFETY: the arguments are DuckDB's own. A refused version leaves the API unset, and DuckDB reports it.
    let found = unsafe { ffi::duckdb_rs_extension_api_init(info, access, API_VERSION) };
    if !found.map_err(Problem::input)? {
        return Ok(false);
    }
    let get_database = access
        .get_database
        .ok_or_else(|| Problem::missing("access to its database"))?;
    // SAFETY: the information is live; DuckDB itself reports why it gives no database.
    let database = unsafe { get_database(info).as_ref() };
    let Some(&database) = database else {
        return Ok(false);
    };
    let mut connection = null_mut();
    // SAFETY: the database is live.
    if unsafe { ffi::duckdb_connect(database, &mut connection) } != ffi::DuckDBSuccess {
        return Err(Problem::input(
            "cannot load Loom: DuckDB refused a connection to register its functions",
        ));
    }
    // SAFETY: the connection was just opened; it is closed once, whatever came of it.
    unsafe {
        let registered =
            table::register_all(connection).and_then(|()| bins::register_all(connection));
        // No later call can read the settings of the database.
        cache::allow(None, memory_limit(connection).as_deref());
        ffi::duckdb_disconnect(&mut connection);
        registered?;
        replacement::register_all(database);
    }
    Ok(true)
}

/// The memory limit of the database, as DuckDB writes it; `None` if it cannot be read.
///
/// # Safety
///
/// `connection` is live, and the API has been initialised.
unsafe fn memory_limit(connection: ffi::duckdb_connection) -> Option<String> {
    // SAFETY: a result consists of numbers and pointers, so zeros are valid. The query fills it, and it is destroyed once in any case. The text
    // belongs to DuckDB until it is freed, once.
    unsafe {
        let mut result: ffi::duckdb_result = zeroed();
        let asked = c"SELECT current_setting('memory_limit')::VARCHAR";
        let state = ffi::duckdb_query(connection, asked.as_ptr(), &mut result);
        let mut limit = None;
        if state == ffi::DuckDBSuccess {
            let text = ffi::duckdb_value_varchar(&mut result, 0, 0);
            if !text.is_null() {
                limit = CStr::from_ptr(text).to_str().ok().map(str::to_owned);
                ffi::duckdb_free(text.cast());
            }
        }
        ffi::duckdb_destroy_result(&mut result);
        limit
    }
}
