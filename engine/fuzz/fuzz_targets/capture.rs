//! The fuzz target `capture`: see `src/capture.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(capture);
