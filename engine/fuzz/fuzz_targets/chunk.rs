//! The fuzz target `chunk`: see `src/chunk.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(chunk);
