//! The DuckDB extension that reads a live Loom directory.
//!
//! One library with two entry points, one for each of DuckDB's C APIs. The way of a query: an adapter ([`v2`] or [`v1`]) turns
//! arguments and filters into values of ours, [`plan`] makes of them what the engine scans, [`exec`] writes the engine's rows into
//! vectors. The adapters only convert; what a query means is decided once.

mod error;
mod exec;
mod plan;
mod v1;
mod v2;
