//! Writes records of a source as Parquet: `copy` reads them past damage, `columns` builds the values that SQL shows, `parquet` writes them in bounded memory:
//! `table` into one file, for `export` and for `pins`, which keep the span around an alert, and `archive` into many. `perfetto` writes those of several
//! sources as a trace, and `otlp` spans and logs as requests, which `endpoint` sends.

pub mod archive;
mod columns;
mod copy;
mod endpoint;
mod export;
mod otlp;
mod out;
mod parquet;
mod path_part;
mod perfetto;
pub mod pins;
mod table;
mod values;
mod verify;

pub use export::{Export, Exported, Format, export};
pub use out::Out;
