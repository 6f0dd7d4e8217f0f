//! The nodes of the chunk index, below all their readers: the existing nodes, the places of their entries, and the reading and verification of both.
//!
//! Recovery, `check` and every query find nodes only here. A node is a summary or a roll-up.

mod node_id;
mod node_logs;
mod node_reader;
mod read_ahead;

pub(crate) use node_id::{NodeId, roots};
pub(crate) use node_logs::NodeLogs;
pub(crate) use node_reader::{NodeReader, OpenNode};
