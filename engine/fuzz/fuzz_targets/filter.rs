//! The fuzz target `filter`: see `src/filter.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(filter);
