//! What the tests of the whole system share: where the built programs stand, DuckDB sessions of both versions that Loom
//! serves, and seeded randomness.
//!
//! `machine` says what this machine has and what must be skipped for want of it; `duckdb` asks SQL of DuckDB 2.0.0 and of the
//! 1.5.6 command line; `seed` draws numbers that a printed seed repeats.

pub mod duckdb;
pub mod machine;
pub mod seed;
