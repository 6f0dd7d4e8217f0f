//! Counts in sentences.

/// `1 segment`, `2 segments`.
pub fn counted(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
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
