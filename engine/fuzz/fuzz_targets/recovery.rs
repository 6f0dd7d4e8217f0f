//! The fuzz target `recovery`: see `src/recovery.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(recovery);
