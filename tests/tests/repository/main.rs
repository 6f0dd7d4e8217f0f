//! The repository itself: its style, what it depends on, its pages, and which tests show which promise.

mod circles;
mod dependencies;
mod documents;
mod promises;
mod style;
