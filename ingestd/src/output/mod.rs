//! Writes records of a source as Parquet: `copy` reads them past damage, `columns` builds the values that SQL shows, `parquet` writes them in bounded memory:
//! `table` into one file, for `export` and for `pins`, which keep the span around an alert, and `archive` into many.

pub mod archive;
mod columns;
mod copy;
mod export;
mod out;
mod parquet;
mod path_part;
pub mod pins;
mod table;
mod verify;

pub use export::{Export, Exported, export};
pub use out::Out;
