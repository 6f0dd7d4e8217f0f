//! The bytes on the socket, as `PROTOCOL.md` specifies them. This encodes and decodes only; it does no I/O.
//!
//! Any process that can connect sends bytes. Therefore every decoder checks each length against the bytes that are there, allocates no more than
//! arrived, and returns an error instead of a panic.

mod frame;
mod reply;
mod request;

pub(crate) use frame::fill_length;
pub use frame::{
    ErrorCode, FRAME_BYTES_MAX, HEADER_BYTES, Header, Malformed, REPLY_BODY_BYTES_MAX,
    REQUEST_BODY_BYTES_MAX,
};
pub use reply::{Counts, DurabilityWord, Reply, Synced, Welcome};
pub use request::{Depth, LostCause, MAGIC, Push, Request, RequestId, Shape, VERSION, Within};
