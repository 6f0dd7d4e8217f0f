//! A ring in shared memory takes one producer's records to the daemon, without a system call and without a lock.
//!
//! The daemon creates the ring ([`Consumer::create`]) in a memfd that can neither shrink nor grow, and hands it to the client over the socket.
//! The client maps it ([`Producer::open`]) and pushes. `PROTOCOL.md` specifies the bytes.
//!
//! - [`layout`] knows the pages, the header and the word before each record, but no memory.
//! - [`protocol`] has the order of all steps of both sides, and nothing else; the model check compiles the same file.
//! - [`memory`] maps the pages. All access is by atomic words, because the other side may be another process.
//! - [`Producer`] and [`Consumer`] are the two ends. The consumer checks everything that it reads; impossible values are [`Broken`].

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

pub use clock::Calibration;
pub use consumer::{Consumer, Ending, Stamps, Taken};
pub use error::{Broken, PushError, RingError};
pub use fork::Opener;
pub use held::Left;
pub use layout::{RecordHead, WhenFull, capacity_of};
pub use producer::{Closer, Producer};
