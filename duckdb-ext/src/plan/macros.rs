//! The macros of `sql/macros.sql`, taken apart for an API that registers them by name, parameters and body. The file is the one
//! place that says what they are; it is written for DuckDB, and plainly enough for this reader: no default but NULL, no
//! semicolon within a body.

const TEXT: &str = include_str!("../../../sql/macros.sql");

const BEGIN: &str = "CREATE OR REPLACE TEMP MACRO ";

#[derive(Debug, PartialEq, Eq)]
pub struct Macro {
    pub name: String,
    /// The comment above it.
    pub description: String,
    pub parameters: Vec<MacroParameter>,
    pub is_table: bool,
    pub body: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct MacroParameter {
    pub name: String,
    /// Its default is NULL.
    pub is_optional: bool,
}

/// In the order of the file.
pub fn all() -> Vec<Macro> {
    TEXT.split(";\n").filter_map(parse).collect()
}

/// A comment, and the statement below it.
fn parse(text: &str) -> Option<Macro> {
    let (before, statement) = text.split_once(BEGIN)?;
    let (_, comment) = before.rsplit_once("\n\n").unwrap_or(("", before));
    let lines = comment.lines().filter_map(|line| line.strip_prefix("-- "));
    let (name, rest) = statement.split_once('(')?;
    let (parameters, body) = rest.split_once(") AS ")?;
    let table = body.strip_prefix("TABLE\n");
    let scalar = || body.strip_prefix("(\n")?.strip_suffix("\n)");
    Some(Macro {
        name: name.to_owned(),
        description: lines.collect::<Vec<_>>().join(" "),
        parameters: parameters
            .split(", ")
            .map(parameter)
            .collect::<Option<_>>()?,
        is_table: table.is_some(),
        body: match table {
            Some(query) => query.to_owned(),
            None => format!("({})", scalar()?),
        },
    })
}

fn parameter(text: &str) -> Option<MacroParameter> {
    let (name, default) = match text.split_once(" := ") {
        None => (text, None),
        Some((name, default)) => (name, Some(default)),
    };
    matches!(default, None | Some("NULL")).then(|| MacroParameter {
        name: name.to_owned(),
        is_optional: default.is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_macro_of_the_file_is_understood() {
        let all = all();
        assert_eq!(all.len(), TEXT.matches("MACRO loom_").count());
        for found in &all {
            assert!(found.name.starts_with("loom_"), "{found:?}");
            assert!(found.description.ends_with('.'), "{found:?}");
            assert!(
                !found.is_table || found.body.contains(" loom_"),
                "{found:?}"
            );
            assert!(!found.body.contains("CREATE"), "{found:?}");
        }
        let quantile = all
            .iter()
            .find(|found| found.name == "loom_quantile")
            .unwrap();
        assert!(!quantile.is_table);
        assert_eq!(quantile.parameters.len(), 10);
        assert!(!quantile.parameters[3].is_optional);
        assert!(quantile.parameters[9].is_optional);
    }
}
