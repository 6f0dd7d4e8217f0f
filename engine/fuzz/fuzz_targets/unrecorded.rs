//! The fuzz target `unrecorded`: see `src/unrecorded.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(unrecorded);
