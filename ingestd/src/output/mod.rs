//! Records of a source as Parquet: `columns` builds what SQL would show, `parquet` writes it in bounded memory,
//! `value` reads the bounds that a user types.

mod columns;
mod parquet;
mod value;

pub use parquet::{Export, export};
pub use value::parse_range;
