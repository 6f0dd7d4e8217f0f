//! The bindings of DuckDB's C API, under the name by which the extension knows them.

pub use libduckdb_sys::v1 as ffi;
