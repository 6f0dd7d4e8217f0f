//! Rules apart from the daemon that evaluates them: whether a condition holds of a window, what follows from that, and the records and the
//! file that keep it. `ingestd rule` uses the same parts.
//!
//! The windows of a rule end at whole multiples of its period since the epoch and are half open in arrival time. So they follow from the clock
//! alone, and a daemon that starts again evaluates the same windows.

pub mod file;
pub mod judge;
pub mod records;
mod status;
pub mod watch;

pub use status::RuleStatus;
