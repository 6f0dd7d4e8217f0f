//! The fuzz target `configuration`: see `src/configuration.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(configuration);
