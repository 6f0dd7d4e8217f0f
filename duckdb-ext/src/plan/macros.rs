//! Splits the macros of `sql/macros.sql` into names, parameters and bodies, for an API that registers them so. The file is SQL that DuckDB
//! can run, and simple enough for this parser: NULL is the only default, and no body contains a semicolon.

const TEXT: &str = include_str!("../../../sql/macros.sql");

const BEGIN: &str = "CREATE OR REPLACE TEMP MACRO ";

#[derive(Debug, PartialEq, Eq)]
pub struct Macro {
    pub name: String,
    /// The comment above the macro.
    pub description: String,
    pub parameters: Vec<MacroParameter>,
    pub is_table: bool,
    pub body: String,
}

#[derive(Debug, PartialEq, Eq)]
pub struct MacroParameter {
    pub name: String,
    /// Whether the parameter has the default NULL.
    pub is_optional: bool,
}

/// All macros, in the order of the file.
pub fn all() -> Vec<Macro> {
    TEXT.split(";\n").filter_map(parse).collect()
}

/// Parses a comment and the statement below it.
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
