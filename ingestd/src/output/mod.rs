//! Records of a source as Parquet: `columns` builds what SQL would show, `parquet` writes it in bounded memory, `export` into one file and
//! `archive` into many, `pins` what surrounds an alert; `value` reads the bounds that a user types.

pub mod archive;
mod columns;
mod export;
mod parquet;
mod path_part;
pub mod pins;
mod value;

pub use export::{Export, export};
pub use value::parse_range;
