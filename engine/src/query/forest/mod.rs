//! The roll-up forest: the nodes that were read, what a predicate says of a node's children, and the walk that descends by it.

pub mod cached_nodes;
pub mod mask;
pub mod node_cache;
pub mod summary_benefit;
pub mod walk;
