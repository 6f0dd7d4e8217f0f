//! Registers each table function with C API v1 and forwards its callbacks, with their panics caught.

use std::ffi::{CStr, CString, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use duckdb::ffi;

use super::value::{LogicalType, OwnedValue};
use super::vectors::Vectors;
use crate::error::{Callback, Problem, Result, guard};
use crate::exec::run::Worker;
use crate::plan::access::Access;
use crate::plan::ambient::Ambient;
use crate::plan::arguments::Arguments;
use crate::plan::function::{Bound, Function, Running};
use crate::plan::functions::FUNCTIONS;
use crate::plan::types::SqlType;

/// C API v1 reports neither interrupts nor the number of threads.
fn ambient() -> Ambient<'static> {
    Ambient {
        file: "duckdb-v1",
        views_grow: views_grow(),
        loom_dir: &|| None,
        stop: &|| false,
        threads: &|| 1,
        access: Access::All,
    }
}

fn views_grow() -> bool {
    // SAFETY: the API was initialised at load, and the text is static.
    let version = unsafe { CStr::from_ptr(ffi::duckdb_library_version()) };
    [b"v1.2.", b"v1.3.", b"v1.4."]
        .iter()
        .all(|before| !version.to_bytes().starts_with(*before))
}

/// # Safety
///
/// `connection` is live, and the API has been initialised.
pub unsafe fn register_all(connection: ffi::duckdb_connection) -> Result<()> {
    for function in FUNCTIONS {
        // SAFETY: as promised by the caller.
        unsafe { register(connection, function)? };
    }
    Ok(())
}

/// # Safety
///
/// As for [`register_all`].
unsafe fn register(connection: ffi::duckdb_connection, function: &'static Function) -> Result<()> {
    let name = text(function.name);
    // SAFETY: the function is created, filled, registered (which copies it) and destroyed here; names and types outlive their
    // calls, and the extra information is static.
    let state = unsafe {
        let mut handle = ffi::duckdb_create_table_function();
        ffi::duckdb_table_function_set_name(handle, name.as_ptr());
        for parameter in function.positional {
            ffi::duckdb_table_function_add_parameter(handle, LogicalType::of(parameter.ty).raw());
        }
        for parameter in function.named {
            let name = text(parameter.name);
            let ty = match parameter.ty {
                // With the declared type MAP, DuckDB would turn a list into its text.
                SqlType::TextMap => SqlType::Any,
                ty => ty,
            };
            ffi::duckdb_table_function_add_named_parameter(
                handle,
                name.as_ptr(),
                LogicalType::of(ty).raw(),
            );
        }
        ffi::duckdb_table_function_set_extra_info(
            handle,
            std::ptr::from_ref(function).cast_mut().cast(),
            None,
        );
        ffi::duckdb_table_function_supports_projection_pushdown(handle, true);
        ffi::duckdb_table_function_set_bind(handle, Some(bind));
        ffi::duckdb_table_function_set_init(handle, Some(init));
        ffi::duckdb_table_function_set_local_init(handle, Some(init_local));
        ffi::duckdb_table_function_set_function(handle, Some(execute));
        let state = ffi::duckdb_register_table_function(connection, handle);
        ffi::duckdb_destroy_table_function(&mut handle);
        state
    };
    if state == ffi::DuckDBSuccess {
        Ok(())
    } else {
        Err(Problem::input(format!(
            "cannot load Loom: DuckDB refused to register {}",
            function.name
        )))
    }
}

/// A text for C, which ends texts with NUL.
pub fn text(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).expect("NULs are replaced")
}

/// The state of one thread. Its worker is created on its first call, because only that call knows the execution.
#[derive(Default)]
struct Local {
    worker: Option<Box<dyn Worker>>,
}

unsafe extern "C" fn drop_boxed<T>(data: *mut c_void) {
    // SAFETY: DuckDB gives back, once, what `into_raw` of this type gave it.
    let owned = unsafe { Box::from_raw(data.cast::<T>()) };
    // A destructor cannot report an error.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(owned))) {
        std::mem::forget(panic);
    }
}

unsafe extern "C" fn bind(info: ffi::duckdb_bind_info) {
    let outcome = guard(Callback::Bind, || {
        // SAFETY: the extra information is the static function that was registered.
        let function: &'static Function =
            unsafe { &*ffi::duckdb_bind_get_extra_info(info).cast::<Function>() };
        let mut arguments = Arguments::of(function.name, function.positional);
        for (at, parameter) in function.positional.iter().enumerate() {
            // SAFETY: the information is live for the call, and the value that it gives is ours.
            let value = unsafe { OwnedValue::new(ffi::duckdb_bind_get_parameter(info, at as u64)) };
            if let Some(value) = value {
                arguments.set(parameter.name, value.datum()?);
            }
        }
        for parameter in function.named {
            let name = text(parameter.name);
            // SAFETY: as above; the name outlives the call.
            let value = unsafe {
                OwnedValue::new(ffi::duckdb_bind_get_named_parameter(info, name.as_ptr()))
            };
            if let Some(value) = value {
                let datum = match parameter.ty {
                    SqlType::TextMap => value.texts_by_text()?,
                    _ => value.datum()?,
                };
                arguments.set(parameter.name, datum);
            }
        }
        let bound = (function.bind)(&arguments, &ambient())?;
        for column in bound.columns() {
            let name = text(&column.name);
            // SAFETY: name and type outlive the call, which copies them.
            unsafe {
                ffi::duckdb_bind_add_result_column(
                    info,
                    name.as_ptr(),
                    LogicalType::of(column.ty).raw(),
                )
            };
        }
        if let Some(rows) = bound.rows_estimate() {
            // SAFETY: the information is live for the call. Not exact: the log grows.
            unsafe { ffi::duckdb_bind_set_cardinality(info, rows, false) };
        }
        let bound = Box::into_raw(Box::new(bound)).cast();
        // SAFETY: the data is a boxed Bound, which DuckDB owns from here.
        unsafe { ffi::duckdb_bind_set_bind_data(info, bound, Some(drop_boxed::<Bound>)) };
        Ok(())
    });
    if let Err(problem) = outcome {
        // SAFETY: the information is live for the call; the text is copied.
        unsafe { ffi::duckdb_bind_set_error(info, text(&problem.to_string()).as_ptr()) };
    }
}

unsafe extern "C" fn init(info: ffi::duckdb_init_info) {
    let outcome = guard(Callback::Init, || {
        // SAFETY: the bind data is what `bind` set, and outlives the execution.
        let bound = unsafe {
            ffi::duckdb_init_get_bind_data(info)
                .cast::<Bound>()
                .as_ref()
        };
        let bound = bound.ok_or_else(|| Problem::missing("bind data"))?;
        // SAFETY: the information is live for the call.
        let columns = unsafe { ffi::duckdb_init_get_column_count(info) };
        // SAFETY: as above, and the number is below the count.
        let projected: Vec<usize> = (0..columns)
            .map(|at| unsafe { ffi::duckdb_init_get_column_index(info, at) } as usize)
            .collect();
        let running = Running::start(&**bound, &projected, &ambient())?;
        // SAFETY: the data is a boxed Running, which DuckDB owns from here.
        unsafe {
            ffi::duckdb_init_set_max_threads(info, running.threads() as u64);
            let running = Box::into_raw(Box::new(running)).cast();
            ffi::duckdb_init_set_init_data(info, running, Some(drop_boxed::<Running>));
        }
        Ok(())
    });
    if let Err(problem) = outcome {
        // SAFETY: the information is live for the call; the text is copied.
        unsafe { ffi::duckdb_init_set_error(info, text(&problem.to_string()).as_ptr()) };
    }
}

unsafe extern "C" fn init_local(info: ffi::duckdb_init_info) {
    let local = Box::into_raw(Box::new(Local::default())).cast();
    // SAFETY: the data is a boxed Local, which DuckDB owns from here.
    unsafe { ffi::duckdb_init_set_init_data(info, local, Some(drop_boxed::<Local>)) };
}

unsafe extern "C" fn execute(info: ffi::duckdb_function_info, output: ffi::duckdb_data_chunk) {
    let outcome = guard(Callback::Execute, || {
        // SAFETY: the data is what `init` set, shared by the threads of the execution that it outlives.
        let running = unsafe {
            ffi::duckdb_function_get_init_data(info)
                .cast::<Running>()
                .as_ref()
        };
        let running = running.ok_or_else(|| Problem::missing("init data"))?;
        // SAFETY: the data is what `init_local` set, for this thread alone.
        let local = unsafe {
            ffi::duckdb_function_get_local_init_data(info)
                .cast::<Local>()
                .as_mut()
        };
        let local = local.ok_or_else(|| Problem::missing("local init data"))?;
        let worker = local.worker.get_or_insert_with(|| running.worker());
        // SAFETY: the chunk is this call's output.
        let mut vectors = unsafe { Vectors::new(output) };
        running.fill(&mut **worker, &mut vectors, &|| false)
    });
    if let Err(problem) = outcome {
        // SAFETY: the information is live for the call; the text is copied.
        unsafe { ffi::duckdb_function_set_error(info, text(&problem.to_string()).as_ptr()) };
    }
}
