//! Converts errors of DuckDB and of the extension. None that leaves here is INTERNAL or FATAL, because those would end the user's whole
//! instance.

use duckdb_neo::Error;
use duckdb_neo::error::DuckDBError;

use crate::error::Problem;

/// Converts an error of DuckDB.
pub fn problem(error: Error) -> Problem {
    match error.code {
        DuckDBError::RuntimeInterrupt => Problem::Interrupted,
        DuckDBError::QueryBinder | DuckDBError::QueryParameterNotResolved => {
            Problem::Binder(error.message)
        }
        _ => Problem::Io(error.message),
    }
}

/// Converts a problem to an error of DuckDB.
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
