//! The fuzz target `node`: see `src/node.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(node);
