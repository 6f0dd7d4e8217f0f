//! Registers the functions of bins with C API v1 and forwards their callbacks, with their panics caught.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::from_ref;
use std::slice::from_raw_parts;

use duckdb::ffi;
use loom_engine::proven::at;

use super::groups::{self, Groups, State};
use super::table::text;
use super::value::LogicalType;
use crate::error::{Callback, Problem, Result, guard};
use crate::exec::vectors::StringEntry;
use crate::exec::{bins_blob, bins_rows};
use crate::plan::bins::{BINS_FUNCTIONS, BinsFunction, Form, Input, Question, Work};

/// # Safety
///
/// `connection` is live, and the API has been initialised.
pub unsafe fn register_all(connection: ffi::duckdb_connection) -> Result<()> {
    for function in BINS_FUNCTIONS {
        // SAFETY: as promised by the caller. All forms of a function are aggregates, or none is.
        let state = unsafe {
            match function.forms.first().map(|form| form.work) {
                Some(Work::Gather(_)) => register_aggregate(connection, function),
                _ => register_scalar(connection, function),
            }
        };
        if state != ffi::DuckDBSuccess {
            return Err(Problem::input(format!(
                "cannot load Loom: DuckDB refused to register {}",
                function.name
            )));
        }
    }
    Ok(())
}

/// # Safety
///
/// As for [`register_all`].
unsafe fn register_aggregate(
    connection: ffi::duckdb_connection,
    function: &'static BinsFunction,
) -> ffi::duckdb_state {
    let name = text(function.name);
    // SAFETY: the set and each function are created, filled, given to DuckDB (which copies them) and destroyed here; names and types outlive
    // their calls, and the extra information is static.
    unsafe {
        let mut set = ffi::duckdb_create_aggregate_function_set(name.as_ptr());
        for form in function.forms {
            let mut handle = ffi::duckdb_create_aggregate_function();
            ffi::duckdb_aggregate_function_set_name(handle, name.as_ptr());
            for parameter in form.parameters {
                let ty = LogicalType::of(parameter.ty);
                ffi::duckdb_aggregate_function_add_parameter(handle, ty.raw());
            }
            let returns = LogicalType::of(form.returns);
            ffi::duckdb_aggregate_function_set_return_type(handle, returns.raw());
            let extra = from_ref(form).cast_mut().cast();
            ffi::duckdb_aggregate_function_set_extra_info(handle, extra, None);
            ffi::duckdb_aggregate_function_set_functions(
                handle,
                Some(state_size),
                Some(init),
                Some(update),
                Some(combine),
                Some(finalize),
            );
            ffi::duckdb_aggregate_function_set_destructor(handle, Some(destroy));
            ffi::duckdb_add_aggregate_function_to_set(set, handle);
            ffi::duckdb_destroy_aggregate_function(&mut handle);
        }
        let state = ffi::duckdb_register_aggregate_function_set(connection, set);
        ffi::duckdb_destroy_aggregate_function_set(&mut set);
        state
    }
}

/// # Safety
///
/// As for [`register_all`].
unsafe fn register_scalar(
    connection: ffi::duckdb_connection,
    function: &'static BinsFunction,
) -> ffi::duckdb_state {
    let name = text(function.name);
    // SAFETY: as for `register_aggregate`.
    unsafe {
        let mut set = ffi::duckdb_create_scalar_function_set(name.as_ptr());
        for form in function.forms {
            let mut handle = ffi::duckdb_create_scalar_function();
            ffi::duckdb_scalar_function_set_name(handle, name.as_ptr());
            for parameter in form.parameters {
                let ty = LogicalType::of(parameter.ty);
                ffi::duckdb_scalar_function_add_parameter(handle, ty.raw());
            }
            let returns = LogicalType::of(form.returns);
            ffi::duckdb_scalar_function_set_return_type(handle, returns.raw());
            let extra = from_ref(form).cast_mut().cast();
            ffi::duckdb_scalar_function_set_extra_info(handle, extra, None);
            ffi::duckdb_scalar_function_set_function(handle, Some(evaluate));
            ffi::duckdb_add_scalar_function_to_set(set, handle);
            ffi::duckdb_destroy_scalar_function(&mut handle);
        }
        let state = ffi::duckdb_register_scalar_function_set(connection, set);
        ffi::duckdb_destroy_scalar_function_set(&mut set);
        state
    }
}

/// A flat vector of an argument. DuckDB flattens all arguments for C API v1.
#[derive(Copy, Clone)]
struct Column<'a, T> {
    rows: &'a [T],
    validity: *mut u64,
}

impl<'a, T: Copy> Column<'a, T> {
    /// # Safety
    ///
    /// `vector` is flat, holds `rows` entries of this type, and lives for `'a`.
    unsafe fn new(vector: ffi::duckdb_vector, rows: usize) -> Column<'a, T> {
        // SAFETY: as promised by the caller.
        unsafe {
            let data = ffi::duckdb_vector_get_data(vector).cast::<T>();
            Column {
                rows: match data.is_null() {
                    true => &[],
                    false => from_raw_parts(data, rows),
                },
                validity: ffi::duckdb_vector_get_validity(vector),
            }
        }
    }

    /// # Safety
    ///
    /// The chunk holds the arguments of a call, and the argument has this type.
    unsafe fn of(chunk: ffi::duckdb_data_chunk, argument: u64) -> Column<'a, T> {
        // SAFETY: as promised by the caller.
        unsafe {
            let rows = ffi::duckdb_data_chunk_get_size(chunk) as usize;
            Column::new(ffi::duckdb_data_chunk_get_vector(chunk, argument), rows)
        }
    }

    fn get(&self, row: usize) -> Option<&'a T> {
        // SAFETY: the mask is null, or has a bit for each row.
        let is_valid = self.validity.is_null()
            || unsafe { ffi::duckdb_validity_row_is_valid(self.validity, row as u64) };
        is_valid.then(|| at(self.rows, row))
    }

    fn iter(self) -> impl Iterator<Item = Option<&'a T>> {
        (0..self.rows.len()).map(move |row| self.get(row))
    }

    fn values(self) -> impl Iterator<Item = Option<T>> {
        self.iter().map(Option::<&T>::copied)
    }
}

impl<'a> Column<'a, StringEntry> {
    fn blobs(self) -> impl Iterator<Item = Option<&'a [u8]>> {
        // SAFETY: the entries of a vector of BLOBs are valid as long as the vector.
        self.iter()
            .map(|entry| entry.map(|entry| unsafe { entry.bytes() }))
    }
}

unsafe extern "C" fn state_size(_: ffi::duckdb_function_info) -> ffi::idx_t {
    const { assert!(align_of::<State>() <= 8) };
    groups::begin();
    size_of::<State>() as u64
}

unsafe extern "C" fn init(_: ffi::duckdb_function_info, state: ffi::duckdb_aggregate_state) {
    // SAFETY: the state is new memory of `state_size` bytes, which DuckDB aligns to 8.
    unsafe { groups::add(state.cast()) };
}

unsafe extern "C" fn destroy(states: *mut ffi::duckdb_aggregate_state, count: ffi::idx_t) {
    // A destructor cannot report an error.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: DuckDB gives back, once, states that `init` made.
        unsafe { groups::remove(states.cast(), count as usize) };
    }));
    if let Err(panic) = outcome {
        std::mem::forget(panic);
    }
}

/// Reports the error of an aggregate's callback.
///
/// # Safety
///
/// `info` is that of the callback that is running.
unsafe fn report(info: ffi::duckdb_function_info, outcome: Result<()>) {
    if let Err(problem) = outcome {
        let message = text(&problem.to_string());
        // SAFETY: as promised by the caller; the text is copied.
        unsafe { ffi::duckdb_aggregate_function_set_error(info, message.as_ptr()) };
    }
}

unsafe extern "C" fn update(
    info: ffi::duckdb_function_info,
    chunk: ffi::duckdb_data_chunk,
    states: *mut ffi::duckdb_aggregate_state,
) {
    // SAFETY: the extra information is the form that was registered, whose parameters have the types read here; there is a state for each row.
    let outcome = guard(Callback::Update, || unsafe {
        let form = &*ffi::duckdb_aggregate_function_get_extra_info(info).cast::<Form>();
        let rows = ffi::duckdb_data_chunk_get_size(chunk) as usize;
        let mut groups = Groups::of_rows(states, rows);
        match form.work {
            Work::Gather(Input::Value) => {
                bins_rows::count_values(Column::of(chunk, 0).values(), &mut groups)
            }
            Work::Gather(Input::Repeated) => bins_rows::count_repeated(
                Column::of(chunk, 0).values(),
                Column::of(chunk, 1).values(),
                &mut groups,
            ),
            Work::Gather(Input::Bins) => {
                bins_rows::merge_blobs(Column::of(chunk, 0).blobs(), &mut groups)
            }
            Work::Ask(_) => Err(Problem::missing("an aggregate")),
        }
    });
    // SAFETY: the information is live for the call.
    unsafe { report(info, outcome) };
}

unsafe extern "C" fn combine(
    info: ffi::duckdb_function_info,
    sources: *mut ffi::duckdb_aggregate_state,
    targets: *mut ffi::duckdb_aggregate_state,
    count: ffi::idx_t,
) {
    let count = count as usize;
    // SAFETY: there are `count` states of each, and no source is a target.
    let outcome = guard(Callback::Combine, || unsafe {
        let mut targets = Groups::new(targets, count);
        bins_rows::combine(count, &Groups::new(sources, count), &mut targets)
    });
    // SAFETY: the information is live for the call.
    unsafe { report(info, outcome) };
}

unsafe extern "C" fn finalize(
    info: ffi::duckdb_function_info,
    states: *mut ffi::duckdb_aggregate_state,
    output: ffi::duckdb_vector,
    count: ffi::idx_t,
    offset: ffi::idx_t,
) {
    // SAFETY: there are `count` states, and the vector of BLOBs has as many rows from the offset on.
    let outcome = guard(Callback::Finalize, || unsafe {
        let groups = Groups::new(states, count as usize);
        for row in 0..count {
            let place = offset + row;
            match bins_blob::write(&groups[row as usize]) {
                Some(bytes) => ffi::duckdb_vector_assign_string_element_len(
                    output,
                    place,
                    bytes.as_ptr().cast(),
                    bytes.len() as u64,
                ),
                None => set_null(output, place),
            }
        }
        Ok(())
    });
    // SAFETY: the information is live for the call.
    unsafe { report(info, outcome) };
}

/// # Safety
///
/// `vector` is a live output vector that has this row.
unsafe fn set_null(vector: ffi::duckdb_vector, row: u64) {
    // SAFETY: as promised by the caller; the mask exists once it was made writable.
    unsafe {
        ffi::duckdb_vector_ensure_validity_writable(vector);
        ffi::duckdb_validity_set_row_invalid(ffi::duckdb_vector_get_validity(vector), row);
    }
}

unsafe extern "C" fn evaluate(
    info: ffi::duckdb_function_info,
    chunk: ffi::duckdb_data_chunk,
    output: ffi::duckdb_vector,
) {
    // SAFETY: the extra information is the form that was registered, whose parameters and result have the types used here.
    let outcome = guard(Callback::Evaluate, || unsafe {
        let form = &*ffi::duckdb_scalar_function_get_extra_info(info).cast::<Form>();
        let blobs = Column::of(chunk, 0).blobs();
        match form.work {
            Work::Ask(Question::Count) => write(output, bins_rows::counts(blobs)?.into_iter()),
            Work::Ask(Question::Quantile) => {
                let fractions = Column::of(chunk, 1).values();
                write(output, bins_rows::quantiles(blobs, fractions)?.into_iter());
            }
            Work::Ask(Question::Quantiles) => {
                let answers = bins_rows::quantile_lists(blobs, lists(chunk, 1))?;
                write_lists(output, &answers)?;
            }
            Work::Gather(_) => return Err(Problem::missing("a scalar function")),
        }
        Ok(())
    });
    if let Err(problem) = outcome {
        let message = text(&problem.to_string());
        // SAFETY: the information is live for the call; the text is copied.
        unsafe { ffi::duckdb_scalar_function_set_error(info, message.as_ptr()) };
    }
}

/// # Safety
///
/// The chunk holds the arguments of a call, and the argument is a list of floats.
unsafe fn lists<'a>(
    chunk: ffi::duckdb_data_chunk,
    argument: u64,
) -> impl Iterator<Item = Option<Vec<Option<f64>>>> + 'a {
    // SAFETY: as promised by the caller. DuckDB flattens the elements together with the list.
    let (lists, items) = unsafe {
        let vector = ffi::duckdb_data_chunk_get_vector(chunk, argument);
        let size = ffi::duckdb_list_vector_get_size(vector) as usize;
        let child = ffi::duckdb_list_vector_get_child(vector);
        let lists: Column<'a, ffi::duckdb_list_entry> = Column::of(chunk, argument);
        (lists, Column::<'a, f64>::new(child, size))
    };
    lists.values().map(move |entry| {
        let entry = entry?;
        let places = entry.offset..entry.offset + entry.length;
        let items = places.map(|place| items.get(place as usize).copied());
        Some(items.collect())
    })
}

/// Writes rows from the first on.
///
/// # Safety
///
/// `vector` is a live output vector of this type that has as many rows.
unsafe fn write<T: Copy>(vector: ffi::duckdb_vector, rows: impl Iterator<Item = Option<T>>) {
    // SAFETY: as promised by the caller.
    unsafe {
        let data = ffi::duckdb_vector_get_data(vector).cast::<T>();
        for (row, value) in rows.enumerate() {
            match value {
                Some(value) => data.add(row).write(value),
                None => set_null(vector, row as u64),
            }
        }
    }
}

/// # Safety
///
/// `vector` is a live output vector of lists of floats that has as many rows.
unsafe fn write_lists(
    vector: ffi::duckdb_vector,
    rows: &[Option<bins_rows::Answers>],
) -> Result<()> {
    let items: usize = rows.iter().flatten().map(Vec::len).sum();
    let mut offset = 0;
    let entries = rows.iter().map(|list| {
        let length = list.as_ref()?.len() as u64;
        let entry = ffi::duckdb_list_entry { offset, length };
        offset += length;
        Some(entry)
    });
    // SAFETY: as promised by the caller; the elements get room before they are written.
    unsafe {
        if ffi::duckdb_list_vector_reserve(vector, items as u64) != ffi::DuckDBSuccess
            || ffi::duckdb_list_vector_set_size(vector, items as u64) != ffi::DuckDBSuccess
        {
            return Err(Problem::missing("memory for the elements of a list"));
        }
        write(vector, entries);
        let child = ffi::duckdb_list_vector_get_child(vector);
        write(child, rows.iter().flatten().flatten().copied());
    }
    Ok(())
}
