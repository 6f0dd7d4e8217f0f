//! Replacement scans of C API v1: `FROM 'run.loom/requests'`.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use duckdb::ffi;

use super::table::text;
use super::value::OwnedValue;
use crate::error::{Callback, guard};
use crate::plan::replacement;

/// # Safety
///
/// `database` is live, and the API has been initialised.
pub unsafe fn register_all(database: ffi::duckdb_database) {
    // SAFETY: as promised by the caller; there is no data to give back.
    unsafe { ffi::duckdb_add_replacement_scan(database, Some(replace), null_mut(), None) };
}

unsafe extern "C" fn replace(
    info: ffi::duckdb_replacement_scan_info,
    name: *const c_char,
    _: *mut c_void,
) {
    let outcome = guard(Callback::Replace, || {
        if name.is_null() {
            return Ok(());
        }
        // SAFETY: the name is a text that ends with NUL and lives for the call.
        let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else {
            return Ok(());
        };
        let Some(found) = replacement::of(name) else {
            return Ok(());
        };
        // SAFETY: the information is live for the call, which copies the name.
        unsafe {
            ffi::duckdb_replacement_scan_set_function_name(info, text(found.function).as_ptr())
        };
        for argument in &found.arguments {
            let value = OwnedValue::of_text(argument);
            // SAFETY: the information and the value are live for the call, which copies the value.
            unsafe { ffi::duckdb_replacement_scan_add_parameter(info, value.raw()) };
        }
        Ok(())
    });
    if let Err(problem) = outcome {
        // SAFETY: the information is live for the call; the text is copied.
        unsafe {
            ffi::duckdb_replacement_scan_set_error(info, text(&problem.to_string()).as_ptr())
        };
    }
}
