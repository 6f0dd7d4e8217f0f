//! The fuzz target `meta`: see `src/meta.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(meta);
