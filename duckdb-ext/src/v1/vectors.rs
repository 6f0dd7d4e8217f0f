//! The output vectors of C API v1, through raw pointers.

use std::ptr::NonNull;

use duckdb::ffi;

use crate::error::{Problem, Result};
use crate::exec::vectors::{CAPACITY, INLINE_BYTES, RawVectors, StringEntry};

/// The vectors of one output chunk; each is requested once, when it is needed.
pub struct Vectors {
    chunk: ffi::duckdb_data_chunk,
    columns: Vec<Column>,
    /// A blank text with which memory is reserved.
    blank: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct Column {
    vector: Option<ffi::duckdb_vector>,
    data: Option<NonNull<u8>>,
    validity: Option<NonNull<u64>>,
}

impl Vectors {
    /// # Safety
    ///
    /// `chunk` is the output chunk of the callback that is running, and outlives the wrapper.
    pub unsafe fn new(chunk: ffi::duckdb_data_chunk) -> Vectors {
        // SAFETY: the chunk is live.
        let columns = unsafe { ffi::duckdb_data_chunk_get_column_count(chunk) };
        Vectors {
            chunk,
            columns: vec![Column::default(); columns as usize],
            blank: Vec::new(),
        }
    }

    fn column(&mut self, position: usize) -> Result<&mut Column> {
        self.columns
            .get_mut(position)
            .ok_or_else(|| Problem::missing(format!("output vector {position}")))
    }

    fn vector(&mut self, position: usize) -> Result<ffi::duckdb_vector> {
        if let Some(vector) = self.column(position)?.vector {
            return Ok(vector);
        }
        // SAFETY: the chunk is live, and the position was checked against its number of vectors.
        let vector = unsafe { ffi::duckdb_data_chunk_get_vector(self.chunk, position as u64) };
        self.column(position)?.vector = Some(vector);
        Ok(vector)
    }
}

fn lent<T>(pointer: *mut T) -> Result<NonNull<T>> {
    NonNull::new(pointer).ok_or_else(|| Problem::missing("memory for an output vector"))
}

// SAFETY: DuckDB's flat output vectors hold STANDARD_VECTOR_SIZE entries of their type, and what was assigned to them lives as
// long as they; the wrapper is used within one call.
unsafe impl RawVectors for Vectors {
    fn data(&mut self, position: usize) -> Result<NonNull<u8>> {
        if let Some(data) = self.column(position)?.data {
            return Ok(data);
        }
        let vector = self.vector(position)?;
        // SAFETY: the vector is live.
        let data = lent(unsafe { ffi::duckdb_vector_get_data(vector) }.cast())?;
        self.column(position)?.data = Some(data);
        Ok(data)
    }

    fn validity(&mut self, position: usize) -> Result<NonNull<u64>> {
        if let Some(validity) = self.column(position)?.validity {
            return Ok(validity);
        }
        let vector = self.vector(position)?;
        // SAFETY: the vector is live, and its mask exists once it was made writable.
        let validity = lent(unsafe {
            ffi::duckdb_vector_ensure_validity_writable(vector);
            ffi::duckdb_vector_get_validity(vector)
        })?;
        self.column(position)?.validity = Some(validity);
        Ok(validity)
    }

    /// The API has no call that allocates: a blank string of that length is assigned, and its memory is used.
    fn heap(&mut self, position: usize, row: usize, bytes: usize) -> Result<NonNull<u8>> {
        assert!(
            bytes > INLINE_BYTES && row < CAPACITY,
            "{bytes} bytes for row {row}"
        );
        let vector = self.vector(position)?;
        let entries = self.data(position)?.cast::<StringEntry>();
        if self.blank.len() < bytes {
            Problem::require(&mut self.blank, bytes)?;
            self.blank.resize(bytes, b' ');
        }
        // SAFETY: the vector is live and of strings, and the row is within its capacity. A long string is copied into memory of the vector, to
        // which its entry points.
        unsafe {
            ffi::duckdb_vector_assign_string_element_len(
                vector,
                row as u64,
                self.blank.as_ptr().cast(),
                bytes as u64,
            );
            lent(entries.add(row).read().address())
        }
    }

    fn constant(&mut self, position: usize, text: &str, rows: usize) -> Result<()> {
        assert!(rows <= CAPACITY, "{rows} rows in a vector of {CAPACITY}");
        if rows == 0 {
            return Ok(());
        }
        let vector = self.vector(position)?;
        let entries = self.data(position)?.cast::<StringEntry>();
        // SAFETY: the vector is live and of strings, and holds `rows` entries; all may point to the first one's memory.
        unsafe {
            ffi::duckdb_vector_assign_string_element_len(
                vector,
                0,
                text.as_ptr().cast(),
                text.len() as u64,
            );
            let entry = entries.read();
            for row in 1..rows {
                entries.add(row).write(entry);
            }
        }
        Ok(())
    }

    fn map(&mut self, position: usize, entries: usize) -> Result<[usize; 2]> {
        let vector = self.vector(position)?;
        let refused = || Problem::missing("memory for the entries of a map");
        // SAFETY: the vector is live and a map, which is a list of structs of a key and a value; their vectors live as long.
        let children = unsafe {
            let made = ffi::duckdb_list_vector_reserve(vector, entries as u64);
            if made != ffi::DuckDBSuccess
                || ffi::duckdb_list_vector_set_size(vector, entries as u64) != ffi::DuckDBSuccess
            {
                return Err(refused());
            }
            let structs = ffi::duckdb_list_vector_get_child(vector);
            [0, 1].map(|nth| ffi::duckdb_struct_vector_get_child(structs, nth))
        };
        let first = self.columns.len();
        self.columns.extend(children.map(|child| Column {
            vector: Some(child),
            ..Column::default()
        }));
        Ok([first, first + 1])
    }

    fn set_rows(&mut self, rows: usize) -> Result<()> {
        // SAFETY: the chunk is live.
        unsafe { ffi::duckdb_data_chunk_set_size(self.chunk, rows as u64) };
        Ok(())
    }
}
