//! Loom extension.
