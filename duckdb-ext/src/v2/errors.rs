//! Errors between the two worlds. None that leaves here is INTERNAL or FATAL: those would end the user's whole instance.

use duckdb_neo::Error;
use duckdb_neo::error::DuckDBError;

use crate::error::Problem;

/// What DuckDB said, as a problem of ours.
pub fn problem(error: Error) -> Problem {
    match error.code {
        DuckDBError::RuntimeInterrupt => Problem::Interrupted,
        DuckDBError::QueryBinder | DuckDBError::QueryParameterNotResolved => {
            Problem::Binder(error.message)
        }
        _ => Problem::Io(error.message),
    }
}

/// A problem as an error of DuckDB.
pub fn error(problem: Problem) -> Error {
    let message = problem.to_string();
    let code = match problem {
        Problem::Binder(_) => DuckDBError::QueryBinder,
        Problem::Input(_) => DuckDBError::InputInvalid,
        Problem::Io(_) => DuckDBError::IoGeneral,
        Problem::Interrupted => DuckDBError::RuntimeInterrupt,
    };
    Error { code, message }
}
