//! The fuzz target `time_entry`: see `src/time_entry.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(time_entry);
