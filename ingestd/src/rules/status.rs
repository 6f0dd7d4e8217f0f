//! The status of a rule: an entry of the JSON document of `PROTOCOL.md`, written by the daemon and read by `ingestd rule list`.

use serde::{Deserialize, Serialize};

/// Counts are since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleStatus {
    pub name: String,
    /// Source, index, condition, window, period and hold, in words.
    pub definition: String,
    /// True if a client added it, false if it stands in the configuration.
    pub added: bool,
    /// `normal`, `pending`, `firing`, or `failing` if the latest window could not be evaluated.
    pub state: String,
    /// The end of the window that was evaluated last.
    pub evaluated_to_ns: i64,
    pub evaluations: u64,
    /// Windows that were not evaluated in time.
    pub missed: u64,
    /// Windows that could not be evaluated.
    pub failures: u64,
    /// The time that its evaluations took.
    pub busy_ns: u64,
    /// Says why the latest window could not be evaluated.
    pub trouble: Option<String>,
}
