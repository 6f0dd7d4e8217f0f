//! The staging file: where its bytes stand, how the writer maps it and how everybody else reads it, and the order of steps between them.

pub mod attachment;
pub mod control;
pub mod listing;
pub mod mapped;
pub mod name;
pub mod note;
pub mod placement;
pub mod protocol;
