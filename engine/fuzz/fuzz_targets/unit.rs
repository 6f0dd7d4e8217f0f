//! The fuzz target `unit`: see `src/unit.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(unit);
