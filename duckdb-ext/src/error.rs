//! The errors of a query, sorted by how DuckDB reports them. Both adapters turn a [`Problem`] into an ordinary DuckDB error. [`guard`] does
//! the same with a panic, because the process belongs to the user.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::OnceLock;

use loom_engine::query::Directory;

pub type Result<T> = std::result::Result<T, Problem>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The statement names something that does not exist, or gives an argument that has no meaning.
    #[error("{0}")]
    Binder(String),
    /// The argument is understood and refused.
    #[error("{0}")]
    Input(String),
    /// A file is missing, unreadable or damaged.
    #[error("{0}")]
    Io(String),
    /// The user stopped the query.
    #[error("the query was interrupted")]
    Interrupted,
}

impl Problem {
    pub fn binder(message: impl Into<String>) -> Problem {
        Problem::Binder(message.into())
    }

    pub fn input(message: impl Into<String>) -> Problem {
        Problem::Input(message.into())
    }

    /// The error of a callback that DuckDB calls without what its API promises.
    pub fn missing(what: impl Display) -> Problem {
        Problem::Input(format!(
            "DuckDB called the Loom extension without {what}; please report it"
        ))
    }

    /// Reserves `count` bytes in all, and reports an error if the system refuses them.
    pub fn require(bytes: &mut Vec<u8>, count: usize) -> Result<()> {
        let room = bytes.try_reserve(count.saturating_sub(bytes.len()));
        room.map_err(|_| {
            Problem::Io(format!(
                "{count} bytes of memory are needed for texts, and the system refuses them; ask with fewer threads or columns, or allow the process \
                 more memory"
            ))
        })
    }

    /// The error of an argument whose value is known only while the query runs.
    pub fn not_constant(parameter: &str) -> Problem {
        Problem::Binder(format!(
            "{parameter} must be a constant: a literal, now(), getvariable('x') or a parameter, not a column or a subquery"
        ))
    }
}

impl From<loom_engine::Error> for Problem {
    fn from(error: loom_engine::Error) -> Problem {
        use loom_engine::Error;
        match error {
            Error::UnknownSource { .. }
            | Error::UnknownIndex { .. }
            | Error::Schema(_)
            | Error::Query(_) => Problem::Binder(error.to_string()),
            Error::Incomplete { .. } => Problem::Input(error.to_string()),
            Error::Interrupted => Problem::Interrupted,
            Error::Evicted { ref dir, .. } => Problem::Io(match oldest_utc(dir) {
                Some(oldest) => {
                    format!(
                        "{error}; the oldest record is now from {oldest}; query a later time, or attach again if a view has an archive"
                    )
                }
                None => error.to_string(),
            }),
            other => Problem::Io(other.to_string()),
        }
    }
}

/// The arrival time of the oldest retained record, as SQL writes times; `None` if the directory cannot be read.
fn oldest_utc(dir: &Path) -> Option<String> {
    let oldest = Directory::open(dir)
        .ok()?
        .snapshot()
        .ok()?
        .oldest_ts()
        .ok()??;
    let time = jiff::Timestamp::from_nanosecond(oldest.0.into()).ok()?;
    Some(time.strftime("'%Y-%m-%d %H:%M:%S%.6f+00'").to_string())
}

/// The places where DuckDB calls the extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callback {
    Load,
    Setting,
    Replace,
    Attach,
    Bind,
    Pushdown,
    Init,
    InitLocal,
    Execute,
    Partition,
    Progress,
    Update,
    Combine,
    Finalize,
    Evaluate,
}

/// Runs the body of one callback. A panic in it ends the query and nothing else.
pub fn guard<T>(callback: Callback, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        assert!(!is_planted(callback), "planted in {callback:?}");
        body()
    }));
    match outcome {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "the panic has no text".to_owned());
            // Dropping a payload may itself panic; it is leaked instead.
            std::mem::forget(panic);
            Err(Problem::Input(format!(
                "an assertion of the Loom extension failed and stopped the query; please report it: {text}"
            )))
        }
    }
}

/// Tests set `LOOM_TEST_PANIC` to the name of a callback to check that a panic in it ends only the query.
fn is_planted(callback: Callback) -> bool {
    static PLANTED: OnceLock<Option<String>> = OnceLock::new();
    let planted = PLANTED.get_or_init(|| std::env::var("LOOM_TEST_PANIC").ok());
    planted
        .as_deref()
        .is_some_and(|name| name == format!("{callback:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_ordinary_error() {
        let problem =
            guard::<()>(Callback::Bind, || panic!("chunk {} has no rows", 7)).unwrap_err();
        assert!(matches!(&problem, Problem::Input(text) if text.ends_with("chunk 7 has no rows")));
        assert_eq!(guard(Callback::Bind, || Ok(3)), Ok(3));
    }
}
