//! Texts as SQL has them, for statements that DuckDB runs and for queries in messages.

/// A text as a constant of SQL.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
