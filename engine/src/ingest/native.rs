//! Index functions given as closures (paper §5.1), for users of the library in this process only.
//!
//! A closure cannot be written to the catalog, so its index is invisible to SQL and ends with its writer.

use std::collections::BTreeMap;

use crate::types::{IndexId, Key};

/// Returns the value of a record's payload, or `None` if the index does not hold the record.
pub type NativeKey = Box<dyn Fn(&[u8]) -> Option<Key> + Send>;

/// The closures of a writer's open indexes.
pub type Natives = BTreeMap<IndexId, NativeKey>;
