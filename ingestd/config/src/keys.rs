//! The reference of the configuration: each key with its type, default and meaning, from the comments of [`EXAMPLE`].
//!
//! loom.toml(5) is made from it, and the tables of the pages are compared with it. Each key is described where it first occurs. The last comment line
//! is `type; default VALUE` or `type; required`; a key that conflicts with another one is commented out.

use super::EXAMPLE;

/// A table of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTable {
    /// `[log]`, `[[rule]]`, `[[source.field]]`.
    pub heading: &'static str,
    pub about: String,
    pub keys: Vec<Key>,
}

/// One key of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: &'static str,
    /// The type in words: `size`, `list of texts`, `"auto" or "off"`.
    pub ty: &'static str,
    pub default: KeyDefault,
    pub meaning: String,
    /// An example value in TOML.
    pub example: &'static str,
}

/// The value of an omitted key.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum KeyDefault {
    /// The key cannot be omitted.
    Required,
    /// A value in TOML, or words such as `unlimited`.
    Is(&'static str),
}

/// Every table and every key, in the order of the example.
pub fn key_tables() -> Vec<KeyTable> {
    let mut tables: Vec<KeyTable> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in EXAMPLE.lines() {
        if let Some(text) = line.strip_prefix("# ") {
            comment.push(text);
        } else if line.starts_with('[') {
            // A table that occurs twice is described once.
            if !comment.is_empty() {
                let about = comment.join(" ");
                tables.push(KeyTable {
                    heading: line,
                    about,
                    keys: Vec::new(),
                });
            }
            comment.clear();
        } else if let Some(key) = key(&comment, line) {
            if let Some(table) = tables.last_mut() {
                table.keys.push(key);
            }
            comment.clear();
        }
    }
    tables
}

/// The key of a line, with the comment above it.
fn key(comment: &[&'static str], line: &'static str) -> Option<Key> {
    let (kind, sentences) = comment.split_last()?;
    let (ty, default) = kind.split_once("; ")?;
    let (name, example) = line.trim_start_matches('#').split_once(" = ")?;
    let default = match default.strip_prefix("default ") {
        Some(value) => KeyDefault::Is(value),
        None => KeyDefault::Required,
    };
    Some(Key {
        name,
        ty,
        default,
        meaning: sentences.join(" "),
        example,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    /// A table with its required keys, as TOML.
    fn minimal(heading: &str) -> String {
        let tables = key_tables();
        let table = tables
            .iter()
            .find(|table| table.heading == heading)
            .unwrap();
        let required = table
            .keys
            .iter()
            .filter(|key| key.default == KeyDefault::Required);
        let lines = required.map(|key| format!("{} = {}\n", key.name, key.example));
        // A field and an index belong to the source before them.
        let before = match heading {
            "[[source.field]]" | "[[source.index]]" => "[[source]]\nname = 's'\n",
            _ => "",
        };
        format!("{before}{heading}\n{}", lines.collect::<String>())
    }

    /// The keys that the code accepts in a table, from its error for an unknown one.
    fn accepted(text: &str) -> Vec<String> {
        let error = Config::parse(text).unwrap_err().message;
        let (_, list) = error.split_once("expected ").expect(&error);
        let names = list.split('`').skip(1).step_by(2);
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        names
    }

    // case Help: a key of the configuration
    #[test]
    fn every_key_that_the_code_accepts_is_described_and_no_other() {
        for table in key_tables() {
            let text = format!("{}unknown = 1\n", minimal(table.heading));
            let mut described: Vec<&str> = table.keys.iter().map(|key| key.name).collect();
            if table.heading == "[[source]]" {
                described.extend(["field", "index"]);
            }
            described.sort();
            assert_eq!(described, accepted(&text), "{}", table.heading);
            for key in &table.keys {
                assert!(
                    key.meaning.ends_with('.'),
                    "{}: {}",
                    table.heading,
                    key.name
                );
                let Some((_, names)) = key.ty.split_once("{ ") else {
                    continue;
                };
                let names = names.trim_end_matches(" }").split(", ");
                let mut names: Vec<&str> = names.collect();
                names.sort();
                let value = match key.ty.starts_with("list of") {
                    true => "[{ unknown = 1 }]",
                    false => "{ unknown = 1 }",
                };
                let text = format!("{}{} = {value}\n", minimal(table.heading), key.name);
                assert_eq!(names, accepted(&text), "{}: {}", table.heading, key.name);
            }
        }
        let headings = key_tables().into_iter().map(|table| table.heading);
        let mut headings: Vec<&str> = headings
            .map(|heading| heading.trim_matches(['[', ']']))
            .filter(|heading| !heading.contains('.'))
            .collect();
        headings.sort();
        assert_eq!(headings, accepted("unknown = 1\n"));
    }

    // case Help: a key of the configuration
    #[test]
    fn a_key_that_is_omitted_has_the_default_that_is_described() {
        for table in key_tables() {
            for key in &table.keys {
                let KeyDefault::Is(value) = key.default else {
                    continue;
                };
                // Other defaults are words.
                if format!("x = {value}").parse::<toml::Table>().is_err() {
                    continue;
                }
                let pin = match key.name {
                    "pin_after" => "pin = '1s'\n",
                    _ => "",
                };
                let without = format!("{}{pin}", minimal(table.heading));
                let with = format!("{without}{} = {value}\n", key.name);
                assert_eq!(
                    Config::parse(&with).unwrap(),
                    Config::parse(&without).unwrap(),
                    "{}: {}",
                    table.heading,
                    key.name
                );
            }
        }
    }

    // case Help: a key of the configuration
    #[test]
    fn the_example_of_each_key_is_one_that_the_code_accepts() {
        for table in key_tables() {
            for key in table.keys {
                let text = EXAMPLE.replace(
                    &format!("\n#{} = ", key.name),
                    &format!("\n{} = ", key.name),
                );
                // Keys that conflict with it are commented out.
                let text = match key.name {
                    "run" => text
                        .replace("\nwebhook =", "\n#webhook =")
                        .replace("\ntls = { ca", "\n#tls = { ca"),
                    // The fields of the example have no series.
                    "series" => format!(
                        "[[source]]\nname = 's'\n[[source.field]]\nname = 'n'\ntype = 'f64'\nseries = {}",
                        key.example
                    ),
                    "basic_auth" => text.replace("\nbearer_file =", "\n#bearer_file ="),
                    _ => text,
                };
                if let Err(error) = Config::parse(&text) {
                    panic!("{}: {}: {error}", table.heading, key.name);
                }
            }
        }
    }
}
