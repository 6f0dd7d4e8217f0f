//! Writes the engine's rows into DuckDB's vectors: one file for each kind of column, shared by both adapters.

pub mod bins;
pub mod bins_blob;
pub mod bins_rows;
pub mod cells;
pub mod coded;
pub mod columns;
#[cfg(target_os = "linux")]
pub mod copy;
pub mod fill;
pub mod fixed;
#[cfg(test)]
pub mod memory;
pub mod place;
pub mod run;
pub mod samples;
pub mod scan;
pub mod series;
pub mod series_aggregate;
pub mod series_groups;
pub mod tail;
pub mod text;
pub mod top;
pub mod vectors;
