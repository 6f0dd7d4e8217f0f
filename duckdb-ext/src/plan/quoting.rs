//! Quotes names and texts for the SQL statements that the extension gives to DuckDB.

pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Writes one text as a literal and several as a list.
pub fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let literals: Vec<String> = texts.map(literal).collect();
    match literals.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}
