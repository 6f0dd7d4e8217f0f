//! Names and texts as SQL writes them, in the statements that we hand to DuckDB.

pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// One text, or a list of several.
pub fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let literals: Vec<String> = texts.map(literal).collect();
    match literals.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}
