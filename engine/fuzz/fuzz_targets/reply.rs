//! The fuzz target `reply`: see `src/reply.rs`.

#![cfg_attr(fuzzing, no_main)]

loom_fuzz::target!(reply);
