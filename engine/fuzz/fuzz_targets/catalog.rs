//! The fuzz target `catalog`: see `src/catalog.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(catalog);
