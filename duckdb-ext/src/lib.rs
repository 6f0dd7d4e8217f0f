//! The DuckDB extension that reads a live Loom directory.
//!
//! The library has two entry points, one for each of DuckDB's C APIs. An adapter ([`v2`] or [`v1`]) turns the arguments and filters of a
//! query into plain values, [`plan`] decides what the engine scans for them, and [`exec`] writes the engine's rows into vectors. The
//! adapters only convert: one place decides what a query means.

mod error;
mod exec;
mod plan;
mod v1;
mod v2;
