//! Stores samples of series in the groups of one target: scraped, or received over OTLP.
//!
//! [`Groups`] knows the source and the field of each series.

mod groups;
mod storing;
mod taken;
mod windows;

use groups::{Groups, NoPlace, Slot};

pub(super) use storing::{Arrived, Failed, GroupStore, Stored};
pub(super) use windows::Memory;
