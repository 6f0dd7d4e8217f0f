//! What the tests of the engine share: directories, records in them, questions about these, and the oracle that answers naively.
//!
//! Tests of logs, of the writer and of queries all begin with a [`Scene`]. The disk that fails and loses power is `log::tests::simulated`: it knows
//! how staging is mapped.

pub mod asked;
pub mod oracle;
pub mod random;
pub mod requests;
pub mod scene;
pub mod world;

pub use random::Random;
pub use scene::{Scene, copy_dir, wait_until};
