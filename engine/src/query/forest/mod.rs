//! The roll-up forest: the nodes that were read, what a predicate says of a node's children, and the walk that descends by it.

// Nodes in memory.
pub mod cached_nodes;
pub mod node_cache;

// The descent.
pub mod claims;
pub mod mask;
pub mod summary_benefit;
pub mod walk;
