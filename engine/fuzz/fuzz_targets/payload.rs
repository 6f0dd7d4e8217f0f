//! The fuzz target `payload`: see `src/payload.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(payload);
