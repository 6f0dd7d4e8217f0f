//! The fuzz target `durable`: see `src/durable.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(durable);
