//! From SQL to the engine: arguments and `WHERE` clauses become predicates, sources become columns. Nothing here knows which of
//! the two C APIs asks.

pub mod access;
pub mod aggregate;
pub mod agreement;
pub mod ambient;
pub mod archive;
pub mod arguments;
pub mod attach;
pub mod bounds;
pub mod bucket;
pub mod buckets;
pub mod chunks;
pub mod clause;
pub mod columns;
pub mod datum;
pub mod directory;
pub mod estimate;
pub mod functions;
pub mod heat;
pub mod histogram;
pub mod macros;
pub mod parameters;
pub mod part;
pub mod paths;
pub mod prune;
pub mod rate;
pub mod replacement;
pub mod scan;
pub mod selection;
pub mod stats;
pub mod tables;
pub mod tail;
pub mod time;
pub mod top;
pub mod types;
pub mod values;
