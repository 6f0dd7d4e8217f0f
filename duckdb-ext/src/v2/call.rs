//! Calls of C API v2 by raw handles.

use std::ptr::null_mut;

use duckdb_neo::ffi;

use crate::error::{Problem, Result};

type Code = ffi::DUCKDB_V2_ERROR;
type ErrorHandle = ffi::duckdb_v2_error_info_handle;

/// Calls a function of the C API, and takes the message if it fails.
pub fn call(function: impl FnOnce(*mut ErrorHandle) -> Code) -> Result<()> {
    let mut error: ErrorHandle = null_mut();
    let code = function(&mut error);
    if code == Code::DUCKDB_V2_ERROR_NONE {
        return Ok(());
    }
    let mut text = ffi::duckdb_v2_str::default();
    let mut message = format!("{code:?}");
    if !error.is_null() {
        // SAFETY: the handle is a live error, whose text stays valid until it is destroyed below.
        unsafe {
            if ffi::duckdb_v2_error_info_get_text(error, &mut text) == Code::DUCKDB_V2_ERROR_NONE
                && !text.ptr.is_null()
            {
                let bytes = std::slice::from_raw_parts(text.ptr.cast::<u8>(), text.len as usize);
                message = String::from_utf8_lossy(bytes).into_owned();
            }
            ffi::duckdb_v2_error_info_destroy(&mut error);
        }
    }
    Err(Problem::Io(format!(
        "DuckDB refused an output vector: {message}"
    )))
}
