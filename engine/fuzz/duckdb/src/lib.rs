//! Whole directories as DuckDB sees them: the extension, built for fuzzing, in one library with the fuzzer.
//!
//! `fuzz.py` has DuckDB load this library as the extension that it is, and then calls [`loom_fuzz`] in it. So the fuzzer learns from the
//! extension's own coverage while DuckDB, which has none, calls it as it does in a user's process. An input is one of the target
//! `directory`: the damaged directory is written to the disk, and Python is asked to look at it.

// Its entry points are exported from this library.
use loom_duckdb as _;

#[cfg(fuzzing)]
mod host;
