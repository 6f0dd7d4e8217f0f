//! Records of a source as Parquet: `copy` reads them past damage, `columns` builds what SQL would show, `parquet` writes it in bounded memory: `table` into one
//! file, for `export` and for `pins`, which keep what surrounds an alert, and `archive` into many; `value` reads the bounds that a user types.

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
