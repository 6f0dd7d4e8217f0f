//! The nodes of the chunk index, below all that reads them: which nodes there are, where their entries stand, how both are read and verified.
//!
//! Recovery, `check` and every query find nodes here and nowhere else. A node is a summary or a roll-up.

mod node_id;
mod node_logs;
mod node_reader;
mod read_ahead;

pub(crate) use node_id::{NodeId, roots};
pub(crate) use node_logs::NodeLogs;
pub(crate) use node_reader::{NodeReader, OpenNode};
