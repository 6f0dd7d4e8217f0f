//! Sources as tables: the statements that create an in-memory catalog with a view for each source of a directory. DuckDB 2 runs them
//! in place of a pragma; the table function `loom_attach` lists them.
//!
//! No statement writes into a catalog that is a file, whatever its name.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use loom_engine::schema::is_builtin;

use super::arguments::{Ambient, Arguments};
use super::columns::Column;
use super::directory;
use super::parameters::Parameter;
use super::paths::Given;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

pub const NAME: Parameter = Parameter {
    name: "name",
    ty: SqlType::Text,
    about: "the name of the catalog; NULL: the name of the directory, without .loom",
};

/// The schema of the views of built-in sources. A catalog that has it is one of ours.
const BUILTIN_SCHEMA: &str = "loom";
const SCHEMA: &str = "main";

/// A variable that exists during one statement.
const CHECKED: &str = "loom_attach_checked";

/// The part of a directory's name that its catalog's default name leaves out.
const SUFFIX: &str = ".loom";

/// A view's schema and name.
pub type ViewName = (&'static str, String);

/// What a view shows: a source, and the directories that have it, in SQL.
pub struct ViewSource {
    source: String,
    dirs: String,
}

/// The columns of the table function.
pub fn columns() -> Vec<Column> {
    vec![Column::new("statement", SqlType::Text)]
}

/// Directories, and the catalog that shows them.
pub struct AttachPlan {
    given: Given,
    pub catalog: String,
}

impl AttachPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<AttachPlan> {
        // A view goes on meaning these directories where the process changes its own.
        let given = arguments.directories(ambient)?.absolute()?;
        let paths = given.paths(ambient.stop)?;
        for path in &paths {
            directory::open(path)?;
        }
        let catalog = match (arguments.text(NAME.name)?, paths.as_slice()) {
            (Some(""), _) => return Err(Problem::binder("name is empty; give the catalog a name")),
            (Some(name), _) => name.to_owned(),
            (None, [path]) => default_name(path),
            (None, _) => {
                return Err(Problem::binder(
                    "dir names several directories; give name, the name of the catalog",
                ));
            }
        };
        Ok(AttachPlan { given, catalog })
    }

    /// The views of the sources as they are now.
    pub fn views(&self, ambient: &Ambient<'_>) -> Result<Vec<(ViewName, ViewSource)>> {
        let paths = self.given.paths(ambient.stop)?;
        // In the order in which they were first met, each with the directories that have it.
        let mut sources: Vec<(String, Vec<&PathBuf>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for path in &paths {
            let snapshot = directory::open(path)?.snapshot()?;
            for source in snapshot.catalog().sources() {
                let place = *places.entry(source.name.clone()).or_insert(sources.len());
                match sources.get_mut(place) {
                    Some((_, holders)) => holders.push(path),
                    None => sources.push((source.name.clone(), vec![path])),
                }
            }
        }
        let mut taken = BTreeSet::new();
        let views = sources.into_iter().zip(1..).map(
            |((source, holders), number)| -> Result<(ViewName, ViewSource)> {
                let schema = match is_builtin(&source) {
                    true => BUILTIN_SCHEMA,
                    false => SCHEMA,
                };
                // SQL ignores the case of names; the older source keeps the name.
                let mut name = source.clone();
                while !taken.insert((schema, name.to_lowercase())) {
                    name = format!("{name}_{number}");
                }
                // What was given, where all of it has the source: a glob then goes on meaning what it matches.
                let dirs = match holders.len() == paths.len() {
                    true => list(self.given.texts().iter().map(String::as_str)),
                    false => {
                        let texts = holders.iter().map(|path| text(path));
                        list(texts.collect::<Result<Vec<_>>>()?.into_iter())
                    }
                };
                Ok(((schema, name), ViewSource { source, dirs }))
            },
        );
        views.collect()
    }

    /// In the order in which they are to run.
    pub fn statements(&self, views: &[(ViewName, ViewSource)], gone: &[ViewName]) -> Vec<String> {
        let catalog = identifier(&self.catalog);
        let mut statements = vec![
            self.check(),
            format!("RESET VARIABLE {CHECKED}"),
            format!("ATTACH IF NOT EXISTS ':memory:' AS {catalog} (READ_WRITE)"),
            format!("CREATE SCHEMA IF NOT EXISTS {catalog}.{BUILTIN_SCHEMA}"),
        ];
        let path = |(schema, name): &ViewName| format!("{catalog}.{schema}.{}", identifier(name));
        statements.extend(
            gone.iter()
                .map(|view| format!("DROP VIEW IF EXISTS {}", path(view))),
        );
        statements.extend(views.iter().map(|(view, shown)| {
            let (path, dirs, source) = (path(view), &shown.dirs, literal(&shown.source));
            format!("CREATE OR REPLACE VIEW {path} AS FROM loom_scan({dirs}, {source})")
        }));
        statements
    }

    /// Fails where the name is that of another catalog: a file's above all, which must not be written to. Of the statements that a
    /// pragma becomes only the last may give rows, so the answer goes into a variable.
    fn check(&self) -> String {
        let catalog = literal(&self.catalog);
        let message = literal(&format!(
            "loom_attach: a catalog '{}' exists already and loom_attach did not create it; give another name after {}",
            self.catalog,
            list(self.given.texts().iter().map(String::as_str))
        ));
        format!(
            "SET VARIABLE {CHECKED} = (SELECT CASE WHEN count(*) > 0 THEN error({message}) END FROM duckdb_databases() \
             WHERE lower(database_name) = lower({catalog}) AND (path IS NOT NULL OR NOT EXISTS (\
             FROM duckdb_schemas() AS made WHERE lower(made.database_name) = lower({catalog}) AND made.schema_name = '{BUILTIN_SCHEMA}')))"
        )
    }

    /// For the table function.
    pub fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let statements = self.statements(&self.views(ambient)?, &[]);
        let row = |statement| vec![Cell::Text(format!("{statement};"))];
        Ok(statements.into_iter().map(row).collect())
    }

    /// For the pragma: one text, which ends with a query of the tables that are there now.
    pub fn script(&self, views: &[(ViewName, ViewSource)], gone: &[ViewName]) -> String {
        let catalog = literal(&self.catalog);
        let names: Vec<String> = views
            .iter()
            .filter(|((schema, _), _)| *schema == SCHEMA)
            .map(|((_, name), _)| literal(name))
            .collect();
        let mut statements = self.statements(views, gone);
        statements.push(format!(
            "SELECT {catalog} AS catalog, unnest([{}]::VARCHAR[]) AS name",
            names.join(", ")
        ));
        statements.join(";\n")
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Problem::binder(format!(
            "cannot attach '{}': the path is not UTF-8; rename the directory",
            path.display()
        ))
    })
}

/// From the directory's own name.
fn default_name(path: &Path) -> String {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = real
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    match name.strip_suffix(SUFFIX).unwrap_or(&name) {
        "" => "loom".to_owned(),
        bare => bare.to_owned(),
    }
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// One text, or a list of several.
fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let literals: Vec<String> = texts.map(literal).collect();
    match literals.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_whatever_they_hold() {
        let attachment = AttachPlan {
            given: Given::new(vec!["/it's/a \"run\".loom".to_owned()]).unwrap(),
            catalog: "my \"run\"".to_owned(),
        };
        let shown = |source: &str, dirs: &[&str]| {
            let shown = ViewSource {
                source: source.to_owned(),
                dirs: list(dirs.iter().copied()),
            };
            ((SCHEMA, source.to_owned()), shown)
        };
        let views = [
            shown("a.b", &["/it's/a \"run\".loom"]),
            shown("o'x\"y", &["/a", "/it's"]),
        ];
        let gone = [(BUILTIN_SCHEMA, "select".to_owned())];
        let statements = attachment.statements(&views, &gone);
        assert_eq!(
            statements[2..],
            [
                "ATTACH IF NOT EXISTS ':memory:' AS \"my \"\"run\"\"\" (READ_WRITE)",
                "CREATE SCHEMA IF NOT EXISTS \"my \"\"run\"\"\".loom",
                "DROP VIEW IF EXISTS \"my \"\"run\"\"\".loom.\"select\"",
                "CREATE OR REPLACE VIEW \"my \"\"run\"\"\".main.\"a.b\" AS FROM loom_scan('/it''s/a \"run\".loom', 'a.b')",
                "CREATE OR REPLACE VIEW \"my \"\"run\"\"\".main.\"o'x\"\"y\" AS FROM loom_scan(['/a', '/it''s'], 'o''x\"y')",
            ]
        );
    }

    #[test]
    fn a_catalog_is_called_as_its_directory() {
        let name = |path: &str| default_name(Path::new(path));
        assert_eq!(name("/nowhere/run 7.loom"), "run 7");
        assert_eq!(name("/nowhere/run.7"), "run.7");
        assert_eq!(name("/nowhere/.loom"), "loom");
        assert_eq!(name("/"), "loom");
    }
}
