//! The fuzz target `definition`: see `src/definition.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(definition);
