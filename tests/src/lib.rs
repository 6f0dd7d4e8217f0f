//! Loom tests.
