//! Cuts SQL text into its statements.

/// The statements of a script without their semicolons. Comments belong to the statement below them; comments without a statement are
/// dropped.
pub fn statements(sql: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut from, mut at, mut is_bare) = (0, 0, true);
    while let Some(rest) = sql.get(at..).filter(|rest| !rest.is_empty()) {
        let first = rest.chars().next().unwrap_or_default();
        at += match first {
            '\'' | '"' => quoted(rest, first),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        if first == ';' {
            found.extend(sql.get(from..at - 1).filter(|_| !is_bare));
            (from, is_bare) = (at, true);
        } else if !first.is_whitespace() && !rest.starts_with("--") {
            is_bare = false;
        }
    }
    found.extend(sql.get(from..).filter(|_| !is_bare));
    found.into_iter().map(str::trim).collect()
}

/// The length of the quoted text at the beginning, in bytes. A doubled quote ends one text and begins another.
fn quoted(text: &str, quote: char) -> usize {
    text.get(1..)
        .and_then(|rest| rest.find(quote))
        .map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::statements;

    #[test]
    fn statements_end_at_semicolons_that_are_not_quoted() {
        let sql = "-- a; comment\nSELECT ';', \"x;\"\"y\" -- it's one; still\n;\n\n;SELECT 'ü'';'; -- the end\n";
        assert_eq!(
            statements(sql),
            [
                "-- a; comment\nSELECT ';', \"x;\"\"y\" -- it's one; still",
                "SELECT 'ü'';'"
            ]
        );
        assert_eq!(statements("SELECT 'x"), ["SELECT 'x"]);
        assert!(statements(" ; \n-- nothing").is_empty());
    }
}
