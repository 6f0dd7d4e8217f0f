//! The output vectors of C API v2, through raw pointers. The other files of this adapter with `unsafe` are `call`, `dictionary` and `host`.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use duckdb_neo::connection::Context;
use duckdb_neo::data_chunk::DataChunkRef;
use duckdb_neo::types::List;
use duckdb_neo::vector::{Unknown, Vector};
use duckdb_neo::{AsRaw, ToValue, ffi};

use super::call::call;
use super::dictionary::Importer;
use super::errors::problem;
use crate::error::{Problem, Result};
use crate::exec::coded::Texts;
use crate::exec::vectors::RawVectors;

/// The vectors of one output chunk; each is requested once, when it is needed.
pub struct Vectors<'a> {
    context: &'a Context,
    importer: &'a mut Importer,
    chunk: &'a DataChunkRef<'a>,
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Default)]
struct Column {
    handle: Option<ffi::duckdb_v2_vector_handle>,
    data: Option<NonNull<u8>>,
    validity: Option<NonNull<u64>>,
    /// The vector has its number of rows.
    is_sized: bool,
}

fn lent<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| Problem::missing("memory for an output vector"))
}

fn child(vector: ffi::duckdb_v2_vector_handle, nth: u64) -> Result<ffi::duckdb_v2_vector_handle> {
    let mut found = null_mut();
    // SAFETY: the handle is of a live vector, with which its children live.
    call(|error| unsafe { ffi::duckdb_v2_vector_get_child(vector, nth, &mut found, error) })?;
    Ok(found)
}

impl<'a> Vectors<'a> {
    pub fn new(
        context: &'a Context,
        importer: &'a mut Importer,
        chunk: &'a DataChunkRef<'a>,
    ) -> Vectors<'a> {
        Vectors {
            context,
            importer,
            columns: vec![Column::default(); chunk.col_count()],
            chunk,
        }
    }

    fn column(&mut self, position: usize) -> Result<&mut Column> {
        self.columns
            .get_mut(position)
            .ok_or_else(|| Problem::missing(format!("output vector {position}")))
    }

    fn handle(&mut self, position: usize) -> Result<ffi::duckdb_v2_vector_handle> {
        if let Some(handle) = self.column(position)?.handle {
            return Ok(handle);
        }
        // SAFETY: the chunk lives for the call, and this wrapper gives none of its vectors to anybody else.
        let chunk = unsafe { self.chunk.get_raw() };
        let mut handle = null_mut();
        // SAFETY: both handles are live, and the position was checked against the number of vectors.
        call(|error| unsafe {
            ffi::duckdb_v2_data_chunk_get_vector(chunk, position as u64, &mut handle, error)
        })?;
        self.column(position)?.handle = Some(handle);
        Ok(handle)
    }
}

// SAFETY: DuckDB's flat output vectors hold STANDARD_VECTOR_SIZE entries of their type, and their arena lives as long as they;
// the wrapper is used within one call, and never hands out a vector that was made constant or a dictionary.
unsafe impl RawVectors for Vectors<'_> {
    fn data(&mut self, position: usize) -> Result<NonNull<u8>> {
        if let Some(data) = self.column(position)?.data {
            return Ok(data);
        }
        let handle = self.handle(position)?;
        let mut data: *mut c_void = null_mut();
        // SAFETY: the handle is live for the call.
        call(|error| unsafe { ffi::duckdb_v2_vector_get_data_mutable(handle, &mut data, error) })?;
        let data = lent(data.cast())?;
        self.column(position)?.data = Some(data);
        Ok(data)
    }

    fn validity(&mut self, position: usize) -> Result<NonNull<u64>> {
        if let Some(validity) = self.column(position)?.validity {
            return Ok(validity);
        }
        let handle = self.handle(position)?;
        let mut validity = null_mut();
        // SAFETY: the handle is live for the call.
        call(|error| unsafe {
            ffi::duckdb_v2_vector_flat_get_validity_mutable(handle, &mut validity, error)
        })?;
        let validity = lent(validity)?;
        self.column(position)?.validity = Some(validity);
        Ok(validity)
    }

    fn heap(&mut self, position: usize, _row: usize, bytes: usize) -> Result<NonNull<u8>> {
        let handle = self.handle(position)?;
        let mut arena = null_mut();
        let mut block = null_mut();
        // SAFETY: the handle is live for the call.
        call(|error| unsafe { ffi::duckdb_v2_vector_get_arena(handle, &mut arena, error) })?;
        // SAFETY: the arena is the vector's, and lives as long.
        call(|error| unsafe {
            ffi::duckdb_v2_arena_allocate(arena, bytes as u64, &mut block, error)
        })?;
        lent(block)
    }

    fn constant(&mut self, position: usize, text: &str, rows: usize) -> Result<()> {
        let handle = self.handle(position)?;
        let value = text.value(self.context).map_err(problem)?;
        // SAFETY: the value is live, and DuckDB copies it.
        let raw = unsafe { value.get_raw() };
        // SAFETY: both handles are live for the call.
        call(|error| unsafe {
            ffi::duckdb_v2_vector_make_constant(handle, raw, rows as u64, error)
        })?;
        self.column(position)?.is_sized = true;
        Ok(())
    }

    fn dictionary(&mut self, position: usize, texts: &Texts, codes: &[u8]) -> Result<bool> {
        let handle = self.handle(position)?;
        let imported = self.importer.import(self.context, texts, codes)?;
        let source = imported.vector()?;
        // SAFETY: both handles are live for the call, and the output vector shares the memory of the other.
        call(|error| unsafe { ffi::duckdb_v2_vector_reference(handle, source, error) })?;
        self.column(position)?.is_sized = true;
        Ok(true)
    }

    fn map(&mut self, position: usize, entries: usize) -> Result<[usize; 2]> {
        let handle = self.handle(position)?;
        let structs = child(handle, 0)?;
        // SAFETY: the handle is of a live vector: that of a map's entries, a struct of a key and a value.
        call(|error| unsafe { ffi::duckdb_v2_vector_set_size(structs, entries as u64, error) })?;
        let first = self.columns.len();
        for nth in [0, 1] {
            self.columns.push(Column {
                handle: Some(child(structs, nth)?),
                ..Column::default()
            });
        }
        Ok([first, first + 1])
    }

    fn set_rows(&mut self, rows: usize) -> Result<()> {
        // DuckDB takes the number of rows from the first vector; a constant vector and a dictionary already have it.
        if self.column(0)?.is_sized {
            return Ok(());
        }
        let handle = self.handle(0)?;
        // SAFETY: the handle is live for the call.
        call(|error| unsafe { ffi::duckdb_v2_vector_set_size(handle, rows as u64, error) })
    }
}

/// Writes a list of floats in each row.
pub fn write_lists(output: Vector<'_, Unknown>, rows: Vec<Option<Vec<Option<f64>>>>) -> Result<()> {
    let mut output = output.cast::<List<f64>>().map_err(problem)?;
    output.set_size(rows.len()).map_err(problem)?;
    let items = rows.iter().flatten().map(Vec::len).sum();
    // SAFETY: the rows below write as many items, or the call fails and DuckDB does not read the vector.
    unsafe { output.set_child_size(items) }.map_err(problem)?;
    let mut writer = output.writer().map_err(problem)?;
    for (row, items) in rows.into_iter().enumerate() {
        writer.set(row, items.map(List)).map_err(problem)?;
    }
    Ok(())
}
