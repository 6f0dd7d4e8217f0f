//! The staging file: its layout, its mapping in the writer, its readers, and the order of steps between them.

pub mod attachment;
pub mod control;
pub mod listing;
pub mod mapped;
pub mod name;
pub mod note;
pub mod placement;
pub mod protocol;
