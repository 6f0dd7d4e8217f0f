//! A ring in shared memory: one producer's records on their way to the daemon, without a system call and without a lock.
//!
//! The daemon creates the ring ([`Consumer::create`]) in a memfd that can neither shrink nor grow, and hands it to the client over the socket.
//! The client maps it ([`Producer::open`]) and pushes. `PROTOCOL.md` specifies the bytes.
//!
//! - [`layout`] knows the pages, the header and the word before each record. No memory.
//! - [`protocol`] holds the order of all steps that the two sides take, and nothing else; the model check compiles the same file.
//! - [`memory`] maps the pages. All access is by atomic words, for the other side may be another process.
//! - [`Producer`] and [`Consumer`] are the two ends. The consumer trusts nothing that it reads: what is not possible is [`Broken`].

mod broken;
mod clock;
mod consumer;
mod error;
mod fork;
mod held;
pub mod layout;
mod memory;
mod producer;
mod protocol;
#[cfg(test)]
mod tests;

pub use broken::Broken;
pub use clock::Calibration;
pub use consumer::{Consumer, Ending, Stamps, Taken};
pub use error::{PushError, RingError};
pub use fork::Opener;
pub use held::Left;
pub use layout::{RecordHead, WhenFull, capacity_of};
pub use producer::{Closer, Producer};
