//! The surroundings of a call, which the adapter provides: settings, interrupts and threads. Reading a setting takes as long as a short
//! query, so `loom_dir` and `threads` are read only where they are used. Access is checked in each call.

use super::access::Access;

/// The surroundings of a call.
pub struct Ambient<'a> {
    /// The name of the extension file that was loaded, which is the name of its folder.
    pub file: &'static str,
    /// Whether a view of `SELECT *` can take over new columns of its query. Before DuckDB 1.5 new columns break such a view.
    pub views_grow: bool,
    /// The setting `loom_dir`; `None` without the setting or without settings at all.
    pub loom_dir: &'a dyn Fn() -> Option<String>,
    /// Whether the user has interrupted the query.
    pub stop: &'a dyn Fn() -> bool,
    /// The number of threads that the call may use.
    pub threads: &'a dyn Fn() -> usize,
    pub access: Access,
}
