//! Loom engine.
