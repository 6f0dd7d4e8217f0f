//! Stores the samples of one target or sender in its groups ([`GroupStore`]).
//!
//! [`Groups`] gives each series its slot, `Windows` compares a sample with earlier ones of its series, and `Taken` collects the records.

mod groups;
mod storing;
mod taken;
mod windows;

use groups::{Groups, NoPlace, Slot};

pub(super) use storing::{Arrived, Failed, GroupStore, Stored};
pub(super) use windows::Memory;
