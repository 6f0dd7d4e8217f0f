//! The fuzz target `directory`: see `src/directory.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(directory);
