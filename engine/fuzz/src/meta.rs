//! `loom.json`: what a directory says it is.
//!
//! Input: the file.

use crate::questions;
use crate::world::{World, path};

pub fn run(input: &[u8]) -> String {
    let mut files = World::base().files.clone();
    files.put(path("loom.json"), input);
    questions::ask(files)
}
