//! What goes wrong in a query, sorted by how DuckDB is to report it. Both adapters turn a [`Problem`] into an ordinary error
//! of theirs; a panic of ours is caught by [`guard`] and becomes one too, for the process is the user's.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub type Result<T> = std::result::Result<T, Problem>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The statement names something that is not there, or gives an argument that has no meaning.
    #[error("{0}")]
    Binder(String),
    /// An argument that is understood and refused.
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
}

impl From<loom_engine::Error> for Problem {
    fn from(error: loom_engine::Error) -> Problem {
        use loom_engine::Error;
        match error {
            Error::UnknownSource { .. }
            | Error::UnknownIndex { .. }
            | Error::Schema(_)
            | Error::Query(_) => Problem::Binder(error.to_string()),
            Error::Interrupted => Problem::Interrupted,
            other => Problem::Io(other.to_string()),
        }
    }
}

/// Runs one callback's body. A panic in it ends the query and nothing else.
pub fn guard<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            // Dropping a payload may itself panic; it is leaked instead.
            std::mem::forget(panic);
            Err(Problem::Input(format!(
                "loom: an assertion of the extension failed and the query was stopped; please report it: {text}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_ordinary_error() {
        let problem = guard::<()>(|| panic!("chunk {} has no rows", 7)).unwrap_err();
        assert!(matches!(&problem, Problem::Input(text) if text.ends_with("chunk 7 has no rows")));
        assert_eq!(guard(|| Ok(3)), Ok(3));
    }
}
