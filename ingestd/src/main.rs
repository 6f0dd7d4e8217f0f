//! ingestd.
fn main() {}
