//! The engine's parts for the tests of all crates: directories, records in them, questions about these, and the oracle that answers naively. Other
//! crates have it by the feature `testkit`.
//!
//! Tests of logs, of the writer and of queries all begin with a [`Scene`]. The disk that fails and loses power is `log::tests::simulated`: it knows
//! how staging is mapped.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::new_without_default,
    clippy::should_implement_trait,
    reason = "helpers of tests fail by panicking"
)]

pub mod asked;
pub mod oracle;
pub mod random;
pub mod requests;
pub mod scene;
#[cfg(test)]
pub(crate) mod world;

pub use asked::payloads;
pub use random::Random;
pub use scene::{Scene, copy_dir, options, paths, wait_until};
