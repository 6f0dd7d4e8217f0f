//! The roll-up forest: which nodes there are, how they are read and verified, and the walk that descends by masks.

pub mod mask;
pub mod node_cache;
pub mod node_id;
pub mod node_reader;
pub mod read_ahead;
pub mod walk;
