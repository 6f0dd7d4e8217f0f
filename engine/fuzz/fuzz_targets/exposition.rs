//! The fuzz target `exposition`: see `src/exposition.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(exposition);
