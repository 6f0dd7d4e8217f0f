//! Index functions given as closures (paper §5.1): for users of the library, in this process only.
//!
//! A closure cannot be written to the catalog, so its index is invisible to SQL, and ends when its writer does.

use std::collections::BTreeMap;

use crate::types::{IndexId, Key};

/// The value of a record's payload, or `None` where the index does not hold the record.
pub type NativeKey = Box<dyn Fn(&[u8]) -> Option<Key> + Send>;

/// The closures of a writer's open indexes.
pub type Natives = BTreeMap<IndexId, NativeKey>;
