//! What a call depends on beside its arguments: settings, the user's patience and the threads there are. The adapters give it. Reading a setting
//! costs as much as a short answer, so `loom_dir` and `threads` are read only where they are used; access is checked in each call.

use super::access::Access;

/// What a call depends on beside its arguments.
pub struct Ambient<'a> {
    /// Which of the two extension files this is: the name of its folder.
    pub file: &'static str,
    /// Whether a view of `SELECT *` gets the columns that its query gets later. Before DuckDB 1.5 such a view is broken from then on.
    pub views_grow: bool,
    /// The setting `loom_dir`, where the adapter has settings.
    pub loom_dir: &'a dyn Fn() -> Option<String>,
    /// Whether the user has interrupted the query.
    pub stop: &'a dyn Fn() -> bool,
    /// So many threads may work at it.
    pub threads: &'a dyn Fn() -> usize,
    pub access: Access,
}
