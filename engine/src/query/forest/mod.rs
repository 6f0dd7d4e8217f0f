//! The roll-up forest: the cached nodes, the predicate over a node's children, and the walk that descends by it.

// Nodes in memory.
pub mod cached_nodes;
pub mod node_cache;

// The descent.
pub mod claims;
pub mod mask;
pub mod summary_benefit;
pub mod walk;
