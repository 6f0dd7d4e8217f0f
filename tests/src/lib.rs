//! What the tests of the whole system share: where the built programs stand, a daemon of their own, DuckDB sessions of both
//! versions that Loom serves, seeded randomness, and random questions.
//!
//! `machine` says what this machine has and what must be skipped for want of it; `daemon` runs the command `ingestd`;
//! `duckdb` asks SQL of DuckDB 2.0.0 and of the 1.5.6 command line; `seed` draws numbers that a printed seed repeats; `mixed`
//! makes rows and `questions` asks about them; `script` cuts SQL into statements,
//! `page` a Markdown page into its examples.

pub mod daemon;
pub mod duckdb;
pub mod machine;
pub mod mixed;
pub mod page;
pub mod probe;
pub mod questions;
pub mod script;
pub mod seed;
