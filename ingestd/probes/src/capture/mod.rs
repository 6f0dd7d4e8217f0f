//! Captures without Arrow: where packets begin and end (`framing`), and who sent them to whom (`headers`).

pub mod framing;
pub mod headers;
