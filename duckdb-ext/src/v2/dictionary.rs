//! Vectors of few texts as dictionaries. C API v2 has no call that makes one, but it makes one of an Arrow array in a dictionary's form, and lets an output
//! vector refer to it. What Arrow calls the index is a row's code here.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use duckdb_neo::connection::Context;
use duckdb_neo::{AsRaw, ffi};

use super::call::call;
use crate::error::Result;
use crate::exec::coded::Texts;

const NULLABLE: i64 = 2;

/// The importer of one thread of a query, created with its first dictionary.
#[derive(Default)]
pub struct Importer {
    handle: Option<ffi::duckdb_v2_arrow_importer_handle>,
}

// SAFETY: an importer is used by one thread at a time.
unsafe impl Send for Importer {}

impl Drop for Importer {
    fn drop(&mut self) {
        if let Some(mut handle) = self.handle.take() {
            // SAFETY: the handle is live, and nobody has another one.
            unsafe { ffi::duckdb_v2_arrow_importer_destroy(&mut handle) };
        }
    }
}

/// A chunk of one vector.
pub struct Imported {
    chunk: ffi::duckdb_v2_data_chunk_handle,
}

impl Drop for Imported {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nobody has another one.
        unsafe { ffi::duckdb_v2_data_chunk_destroy(&mut self.chunk) };
    }
}

impl Imported {
    /// The vector, which lives as long as the chunk.
    pub fn vector(&self) -> Result<ffi::duckdb_v2_vector_handle> {
        let mut vector = null_mut();
        // SAFETY: the chunk is live and has one vector.
        call(|error| unsafe {
            ffi::duckdb_v2_data_chunk_get_vector(self.chunk, 0, &mut vector, error)
        })?;
        Ok(vector)
    }
}

impl Importer {
    /// Makes a vector in which a row has the text of its code. `context` is that of the query.
    pub fn import(&mut self, context: &Context, texts: &Texts, codes: &[u8]) -> Result<Imported> {
        let handle = match self.handle {
            Some(handle) => handle,
            None => *self.handle.insert(create(context)?),
        };
        let mut array = Held::array(texts, codes);
        // SAFETY: the importer is live, and takes the array; if it refuses, the array is released here.
        let appended = call(|error| unsafe {
            ffi::duckdb_v2_arrow_importer_append(handle, &mut array, true, true, error)
        });
        if let (Err(_), Some(release)) = (&appended, array.release) {
            // SAFETY: the importer left the array as it was.
            unsafe { release(&mut array) };
        }
        appended?;
        let mut chunk = null_mut();
        // SAFETY: the importer is live. It imposes no size on chunks, so the array becomes one.
        call(|error| unsafe {
            ffi::duckdb_v2_arrow_importer_next_chunk(handle, &mut chunk, error)
        })?;
        assert!(!chunk.is_null(), "an array with rows becomes a chunk");
        Ok(Imported { chunk })
    }
}

/// Creates an importer of batches with one column: a dictionary of texts.
fn create(context: &Context) -> Result<ffi::duckdb_v2_arrow_importer_handle> {
    let schema = |format: &'static std::ffi::CStr| ffi::ArrowSchema {
        format: format.as_ptr(),
        name: c"text".as_ptr(),
        metadata: null(),
        flags: NULLABLE,
        n_children: 0,
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(keep_schema),
        private_data: null_mut(),
    };
    let mut texts = schema(c"u");
    let mut codes = schema(c"C");
    codes.dictionary = &raw mut texts;
    let mut children = [&raw mut codes];
    let mut batch = schema(c"+s");
    batch.n_children = 1;
    batch.children = children.as_mut_ptr();
    // SAFETY: the context is that of the query, which outlives the importer, and is lent for this call.
    let context = unsafe { context.get_raw() };
    let mut handle = null_mut();
    // SAFETY: DuckDB reads the schema during the call only, and does not release it.
    call(|error| unsafe {
        ffi::duckdb_v2_arrow_importer_create(context, &mut batch, 0, &mut handle, error)
    })?;
    Ok(handle)
}

/// The schema lies on the stack; there is nothing to free.
unsafe extern "C" fn keep_schema(schema: *mut ffi::ArrowSchema) {
    // SAFETY: the caller owns the schema.
    unsafe { (*schema).release = None };
}

/// The memory of an array, which Arrow's structs point into. DuckDB frees it with the last vector that refers to it.
struct Held {
    codes: Vec<u8>,
    bytes: Vec<u8>,
    /// The start of the first text, and the end of each.
    offsets: Vec<u32>,
    /// A bit for each text, unset for NULL.
    valid: [u8; 32],
    of_batch: [*const c_void; 1],
    of_codes: [*const c_void; 2],
    of_texts: [*const c_void; 3],
    column: ffi::ArrowArray,
    children: [*mut ffi::ArrowArray; 1],
    dictionary: ffi::ArrowArray,
}

impl Held {
    fn array(texts: &Texts, codes: &[u8]) -> ffi::ArrowArray {
        let mut valid = [u8::MAX; 32];
        if let Some(null) = texts.null {
            *loom_engine::proven::at_mut(&mut valid, usize::from(null / 8)) &= !(1 << (null % 8));
        }
        let rows = codes.len() as i64;
        let held = Box::new(Held {
            codes: codes.to_vec(),
            bytes: texts.bytes.clone(),
            offsets: std::iter::once(&0).chain(&texts.ends).copied().collect(),
            valid,
            of_batch: [null()],
            of_codes: [null(); 2],
            of_texts: [null(); 3],
            column: ffi::ArrowArray {
                length: rows,
                n_buffers: 2,
                release: Some(keep_array),
                ..ffi::ArrowArray::empty()
            },
            children: [null_mut()],
            dictionary: ffi::ArrowArray {
                length: texts.count() as i64,
                null_count: i64::from(texts.null.is_some()),
                n_buffers: 3,
                release: Some(keep_array),
                ..ffi::ArrowArray::empty()
            },
        });
        let held = Box::into_raw(held);
        // SAFETY: the box was just leaked; `release` takes it back. Its structs point to each other and into its vectors, none of which moves.
        unsafe {
            (*held).of_codes = [null(), (*held).codes.as_ptr().cast()];
            (*held).of_texts = [
                match texts.null {
                    Some(_) => (&raw const (*held).valid).cast(),
                    None => null(),
                },
                (*held).offsets.as_ptr().cast(),
                (*held).bytes.as_ptr().cast(),
            ];
            (*held).dictionary.buffers = (&raw mut (*held).of_texts).cast();
            (*held).column.buffers = (&raw mut (*held).of_codes).cast();
            (*held).column.dictionary = &raw mut (*held).dictionary;
            (*held).children = [&raw mut (*held).column];
            ffi::ArrowArray {
                length: rows,
                n_buffers: 1,
                n_children: 1,
                buffers: (&raw mut (*held).of_batch).cast(),
                children: (&raw mut (*held).children).cast(),
                release: Some(release),
                private_data: held.cast(),
                ..ffi::ArrowArray::empty()
            }
        }
    }
}

/// The parts of a batch are freed with it.
unsafe extern "C" fn keep_array(array: *mut ffi::ArrowArray) {
    // SAFETY: the caller owns the array.
    unsafe { (*array).release = None };
}

unsafe extern "C" fn release(array: *mut ffi::ArrowArray) {
    // SAFETY: the array is a batch that `Held::array` made, and is released once.
    unsafe {
        drop(Box::from_raw((*array).private_data.cast::<Held>()));
        (*array).release = None;
    }
}
