//! Names and texts as SQL writes them, in the statements that we hand to DuckDB.

pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
