//! Captures without Arrow: `framing` finds packets, `headers` reads their headers.

pub mod framing;
pub mod headers;
