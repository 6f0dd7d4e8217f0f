//! Texts as SQL has them, for statements that DuckDB runs and for queries that people are shown.

/// A text as a constant of SQL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
