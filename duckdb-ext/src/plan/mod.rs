//! From SQL to the engine: arguments and `WHERE` clauses become predicates, sources become columns. Nothing here knows which of
//! the two C APIs asks.

pub mod aggregate;
pub mod arguments;
pub mod bounds;
pub mod columns;
pub mod datum;
pub mod directory;
pub mod filter;
pub mod functions;
pub mod number;
pub mod prune;
pub mod scan;
pub mod selection;
pub mod stats;
pub mod tables;
pub mod time;
pub mod types;
