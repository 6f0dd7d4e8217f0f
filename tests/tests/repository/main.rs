//! The repository itself: its style, its dependencies, its pages, and the tests that show its promises.

mod circles;
mod dependencies;
mod documents;
mod format;
mod promises;
mod style;
