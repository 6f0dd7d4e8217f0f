//! The fuzz target `request`: see `src/request.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(request);
