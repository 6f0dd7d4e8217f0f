//! Samples of series on their way into the groups of one target: scraped, or received over OTLP.
//!
//! [`Groups`] knows which field of which source holds a series.

mod groups;
mod storing;
mod taken;
mod windows;

use groups::{Groups, NoPlace, Slot};

pub(super) use storing::{Arrived, Failed, GroupStore, Stored};
pub(super) use windows::Memory;
