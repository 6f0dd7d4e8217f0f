//! The fuzz target `staging`: see `src/staging.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(staging);
