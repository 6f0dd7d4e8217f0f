//! Samples of series on their way into the groups of one target: scraped, or received over OTLP.
//!
//! Samples that come together become one record of each group and time (Heracles §3: the series of a target share a timestamp).
//! [`Groups`] knows which field of which source holds a series.

mod groups;
mod storing;
mod taken;
mod windows;

use groups::{Groups, NoPlace, Slot, shown};

pub(super) use groups::Series;
pub(super) use storing::{Arrived, Failed, GroupStore, Stored};
pub(super) use windows::Memory;
