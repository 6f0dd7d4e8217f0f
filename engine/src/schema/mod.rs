//! The meaning of a source's bytes: fields and their layouts, indexes with filters and bins, and the catalog that holds all of these.
//!
//! People and clients write definitions (`SourceDef`, `FieldDef`, `IndexDef`, `BinsDef`). In the `Catalog` they become a `Source` with
//! `Layout`s and `Index`es; the catalog's events are the lines of its file. Nothing here does I/O, and all of it takes untrusted bytes.

mod bin_map;
mod bins;
mod catalog;
mod comparison;
mod constant;
mod encoder;
mod field;
mod filter;
mod index;
mod label_index;
mod layout;
mod loss;
mod names;
mod number;
mod payloads;
mod pieces;
mod ranges;
mod source;
mod widen;

pub use crate::error::PayloadError;
pub use crate::format::Case;
pub use crate::types::{
    ALERT_STATES, ALERTS_SOURCE, LOSSES_SOURCE, METRICS_SOURCE, RULE_STATES, RULES_SOURCE,
};
pub use bin_map::BinMap;
pub use bins::{BINS_MAX, BinsDef};
pub use catalog::{
    Catalog, Event, SOURCES_MAX, Source, decode_catalog, decode_whole_catalog, encode_line,
    unknown_source,
};
pub use comparison::{Domain, Op};
pub use constant::Constant;
pub use encoder::{FieldValue, PayloadEncoder};
pub use field::{FieldDef, FieldType, LABELS_MAX, SERIES_BYTES_MAX};
pub(crate) use filter::compared;
pub use filter::{Expr, FILTER_BYTES_MAX, Filter};
pub use index::{INDEXES_MAX, Index, IndexDef};
pub use label_index::{LabelIndex, LabelTest, METRIC_LABEL, SeriesId};
pub use layout::{FIELDS_MAX, Layout, PAYLOAD_BYTES_MAX, Place, Slot, TimeKind};
pub use loss::{
    LossDecoder, LossEncoder, LossReason, LossRecord, LossStage, LossText, losses_source,
};
pub use names::{
    BUILTIN_PREFIX, NAME_BYTES_MAX, RESERVED_FIELDS, check_name, is_builtin, is_pin,
    is_reserved_field, nearest,
};
pub use number::Number;
pub use payloads::Payloads;
pub use pieces::{FieldPieces, Pieces};
pub use ranges::{Discrete, RangeSet};
pub use source::{Overload, SourceDef, parse_sources, validate_sources};
pub use widen::Widening;
