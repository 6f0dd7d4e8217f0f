//! Counts in sentences.

/// `1 segment`, `2 segments`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = singular_or(count, "", "s");
    format!("{count} {noun}{plural}")
}

/// The word that agrees with a count.
pub fn singular_or(count: u64, one: &'static str, more: &'static str) -> &'static str {
    if count == 1 { one } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let shown = [0, 1, 2].map(|count| counted(count, "row"));
        assert_eq!(shown, ["0 rows", "1 row", "2 rows"]);
    }
}
