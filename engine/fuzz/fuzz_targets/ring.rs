//! The fuzz target `ring`: see `src/ring.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(ring);
