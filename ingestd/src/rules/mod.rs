//! The parts of rules that `ingestd rule` and the daemon share: conditions over windows, their consequences, and the records and the
//! file that keep them.
//!
//! The windows of a rule end at whole multiples of its period since the epoch and are half open in arrival time. So they follow from the clock
//! alone, and a daemon that starts again evaluates the same windows.

pub mod file;
pub mod judge;
pub mod records;
mod status;
pub mod watch;

pub use status::RuleStatus;
