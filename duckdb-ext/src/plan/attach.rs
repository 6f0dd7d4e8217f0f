//! Sources as tables: the statements that create an in-memory catalog with a view for each source of a directory, and two for each index,
//! on which a dashboard can be built. DuckDB 2 runs the statements in place of a pragma; the table function `loom_attach` lists them.
//!
//! No statement writes into a catalog that is a file, whatever its name.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loom_engine::schema::{ALERT_STATES, ALERTS_SOURCE, Source, is_builtin};

use super::ambient::Ambient;
use super::archive::Archive;
use super::arguments::Arguments;
use super::columns::{self, Column};
use super::directory;
use super::function::{Function, SmallTable};
use super::parameters::{DIR, Parameter};
use super::paths::Given;
use super::pins;
use super::quoting::{identifier, list, literal};
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

pub const NAME: Parameter = Parameter {
    name: "name",
    ty: SqlType::Text,
    about: "the name of the catalog; NULL: the name of the directory, without .loom",
    omitted: None,
};

pub const ARCHIVE: Parameter = Parameter {
    name: "archive",
    ty: SqlType::Text,
    about: "the archive that 'ingestd archive' wrote for the directory; views of sources then show its records too, up to the address that it has reached now",
    omitted: Some(NO_ARCHIVE),
};

/// The value of `archive` if the call omits it.
const NO_ARCHIVE: &str = "no archive";

/// The schema of the views of built-in sources. Loom made every catalog that has this schema.
const BUILTIN_SCHEMA: &str = "loom";
const SCHEMA: &str = "main";

/// A variable that exists only while the pragma runs.
const CHECKED: &str = "loom_attach_checked";

/// The quantiles in the views of indexes. Dashboards query them all the time, and the bins alone answer in a hundredth of the time.
const QUANTILES: &str = ", quantiles := [0.5, 0.9, 0.99, 0.999, 0.9999], approx := true";

/// The view of alerts of a directory whose daemon never had a rule. It is empty and has the usual columns, so dashboards open without a
/// rule.
fn no_alerts() -> String {
    format!(
        "SELECT NULL::VARCHAR AS source, NULL::TIMESTAMPTZ AS ts, NULL::BIGINT AS ts_ns, NULL::VARCHAR AS rule, \
         NULL::{} AS state, NULL::DOUBLE AS value, NULL::DOUBLE AS threshold, NULL::TIMESTAMP_NS AS from_ts, NULL::TIMESTAMP_NS AS to_ts, \
         NULL::UBIGINT AS position, NULL::VARCHAR AS detail, NULL::UBIGINT AS addr, NULL::VARCHAR AS dir WHERE false",
        SqlType::Enum(&ALERT_STATES).name()
    )
}

/// The part of the directory's name that is not in the name of the catalog.
const SUFFIX: &str = ".loom";

/// The schema and the name of a view.
pub type ViewName = (&'static str, String);

/// A source, and the directories that have it.
struct Shown {
    source: Arc<Source>,
    /// In the order given; never empty.
    holders: Vec<PathBuf>,
    /// The columns of `loom_scan` in the directory with the most fields.
    columns: Vec<Column>,
    /// The indexes that are open in all of these directories.
    indexes: Vec<IndexShown>,
}

struct IndexShown {
    name: String,
    has_values: bool,
}

/// The name of a view, and its query.
pub type View = (ViewName, String);

pub const FUNCTION: Function = Function {
    name: "loom_attach",
    description: "The statements that create a catalog with a view for each source of a Loom directory, in order.",
    columns: "`statement`",
    examples: &["FROM loom_attach('telemetry.loom', name := 'yesterday')"],
    positional: &[DIR],
    named: &[NAME, ARCHIVE],
    bind: |arguments, ambient| {
        let plan = AttachPlan::bind(arguments, ambient)?;
        let columns = vec![Column::new("statement", SqlType::Text)];
        Ok(SmallTable::bound(columns, move |ambient| {
            plan.rows(ambient)
        }))
    },
};

/// A set of directories, and the catalog that shows them.
pub struct AttachPlan {
    given: Given,
    pub catalog: String,
    archive: Option<String>,
}

impl AttachPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<AttachPlan> {
        // A view keeps meaning these directories if the process changes its working directory.
        let given = arguments.directories(ambient)?.absolute()?;
        let paths = given.paths(ambient)?;
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
        let archive = match arguments.text(ARCHIVE.name)? {
            Some(NO_ARCHIVE) => None,
            None if !arguments.is_null(ARCHIVE.name) => None,
            None | Some("") => {
                return Err(Problem::binder(
                    "archive is NULL or empty; give the folder that 'ingestd archive' wrote, or omit archive",
                ));
            }
            Some(given) => Some(given.to_owned()),
        };
        if archive.is_some() && paths.len() > 1 {
            return Err(Problem::binder(
                "dir names several directories, but an archive belongs to one; attach each directory with its own archive",
            ));
        }
        Ok(AttachPlan {
            given,
            catalog,
            archive,
        })
    }

    /// Opens the archive, as it is now.
    fn archive(&self, ambient: &Ambient<'_>) -> Result<Option<Archive>> {
        match (&self.archive, self.given.paths(ambient)?.as_slice()) {
            (Some(given), [path]) => {
                Archive::open(given, &*directory::open(path)?, ambient).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The views of the current sources. Views of sources come first; a view of an index gives way to a source of the same name.
    pub fn views(&self, ambient: &Ambient<'_>) -> Result<Vec<View>> {
        // The archive is opened before the sources are listed, so every source of the archive is among them.
        let archive = self.archive(ambient)?;
        let paths = self.given.paths(ambient)?;
        let sources = self.sources(&paths)?;
        let mut taken = BTreeSet::new();
        let mut views = Vec::new();
        for (shown, number) in sources.iter().zip(1..) {
            let schema = match is_builtin(&shown.source.name) {
                true => BUILTIN_SCHEMA,
                false => SCHEMA,
            };
            let name = free_name(&mut taken, schema, shown.source.name.clone(), number);
            let (dirs, source) = (self.dirs_of(shown, &paths)?, literal(&shown.source.name));
            let archive = archive.as_ref().zip(shown.holders.first());
            let both = archive.and_then(|(archive, path)| archive.query(&shown.source, path));
            let scan = || match ambient.views_grow {
                true => format!("FROM loom_scan({dirs}, {source})"),
                false => {
                    let names = shown.columns.iter().map(|column| identifier(&column.name));
                    let names = names.collect::<Vec<_>>().join(", ");
                    format!("SELECT {names} FROM loom_scan({dirs}, {source})")
                }
            };
            views.push((name, both.unwrap_or_else(scan)));
        }
        let mut sure = |name: &str, query: String| {
            if taken.insert((BUILTIN_SCHEMA, name.to_owned())) {
                views.push(((BUILTIN_SCHEMA, name.to_owned()), query));
            }
        };
        sure(ALERTS_SOURCE, no_alerts());
        let dirs = list(self.given.texts().iter().map(String::as_str));
        sure(pins::FUNCTION, format!("FROM {}({dirs})", pins::FUNCTION));
        let asked = sources
            .iter()
            .filter(|shown| !is_builtin(&shown.source.name));
        let asked = asked.flat_map(|shown| shown.indexes.iter().map(move |index| (shown, index)));
        for ((shown, index), number) in asked.zip(1..) {
            let (dirs, source) = (self.dirs_of(shown, &paths)?, literal(&shown.source.name));
            let call = format!(
                "{dirs}, {source}, {}, bucket := INTERVAL 1 SECOND",
                literal(&index.name)
            );
            let base = format!("{}__{}", shown.source.name, index.name);
            let name = free_name(&mut taken, SCHEMA, base.clone(), number);
            views.push((name, format!("FROM loom_aggregate({call}{QUANTILES})")));
            if index.has_values {
                let name = free_name(&mut taken, SCHEMA, format!("{base}__heat"), number);
                views.push((name, format!("FROM loom_heat({call})")));
            }
        }
        Ok(views)
    }

    /// The sources in the order in which the directories name them.
    fn sources(&self, paths: &[PathBuf]) -> Result<Vec<Shown>> {
        let mut sources: Vec<Shown> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for path in paths {
            let snapshot = directory::open(path)?.snapshot()?;
            for source in snapshot.catalog().sources() {
                let place = *places.entry(source.name.clone()).or_insert(sources.len());
                let indexes = open_indexes(source);
                let columns = columns::of_source(&source.name, &source.fields);
                match sources.get_mut(place) {
                    Some(known) => {
                        if columns.len() > known.columns.len() {
                            known.columns = columns;
                        }
                        known.holders.push(path.clone());
                        known.indexes.retain(|index| {
                            let mut others = indexes.iter();
                            others.any(|other| other.name == index.name)
                        });
                    }
                    None => sources.push(Shown {
                        source: Arc::clone(source),
                        holders: vec![path.clone()],
                        columns,
                        indexes,
                    }),
                }
            }
        }
        Ok(sources)
    }

    /// The directories of a view in SQL. If all of them have the source, this is the text that was given, so that a glob matches again in each query.
    fn dirs_of(&self, shown: &Shown, paths: &[PathBuf]) -> Result<String> {
        if shown.holders.len() == paths.len() {
            return Ok(list(self.given.texts().iter().map(String::as_str)));
        }
        let texts = shown.holders.iter().map(|path| text(path));
        Ok(list(texts.collect::<Result<Vec<_>>>()?.into_iter()))
    }

    /// The statements, in the order in which they must run.
    fn statements(&self, views: &[View], gone: &[ViewName]) -> Vec<String> {
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
        statements.extend(
            views
                .iter()
                .map(|(view, query)| format!("CREATE OR REPLACE VIEW {} AS {query}", path(view))),
        );
        statements
    }

    /// A statement that fails if another catalog has the name, above all a file, which must not be written. Only the last statement of a
    /// pragma may return rows, so the result goes into a variable.
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

    fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let statements = self.statements(&self.views(ambient)?, &[]);
        let row = |statement| vec![Cell::Text(format!("{statement};"))];
        Ok(statements.into_iter().map(row).collect())
    }

    /// The text for the pragma, which ends with a query of the tables that exist now.
    pub fn script(&self, views: &[View], gone: &[ViewName]) -> String {
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

fn open_indexes(source: &Source) -> Vec<IndexShown> {
    let open = source.indexes.iter().filter(|index| index.is_open());
    let shown = open.map(|index| IndexShown {
        name: index.name.clone(),
        has_values: index.value_field().is_some(),
    });
    shown.collect()
}

/// The name, with the number appended if it is taken. SQL ignores the case of names.
fn free_name(
    taken: &mut BTreeSet<ViewName>,
    schema: &'static str,
    name: String,
    number: usize,
) -> ViewName {
    let mut name = name;
    while !taken.insert((schema, name.to_lowercase())) {
        name = format!("{name}_{number}");
    }
    (schema, name)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Problem::binder(format!(
            "cannot attach '{}': the path is not UTF-8; rename the directory",
            path.display()
        ))
    })
}

/// The default name of the catalog, which is the name of the directory.
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

#[cfg(test)]
mod tests {
    use loom_engine::ingest::{Writer, WriterOptions};
    use loom_engine::log::LogOptions;
    use loom_engine::schema::parse_sources;

    use super::super::access::Access;
    use super::*;

    #[test]
    fn a_view_names_its_columns_where_new_fields_would_break_it() {
        let place = tempfile::tempdir().unwrap();
        let fields = [
            "[[source.field]]\nname = 'a'\ntype = 'u64'\n",
            "[[source.field]]\nname = 'B b'\ntype = 'u64'\nnullable = true\n",
        ];
        let dirs = [("one", &fields[..1]), ("two", &fields[..])].map(|(name, fields)| {
            let dir = place.path().join(name);
            let options = WriterOptions {
                log: LogOptions {
                    chunk_bytes: 4096,
                    block_bytes: 64 << 10,
                    segment_bytes: [1 << 20; 3].into(),
                    staging: Some(place.path().to_owned()),
                    ..LogOptions::default()
                },
                ..WriterOptions::default()
            };
            let mut writer = Writer::open(&dir, options).unwrap();
            let toml = format!("[[source]]\nname = 's'\n{}", fields.concat());
            for source in parse_sources(&toml).unwrap() {
                writer.define_source(&source).unwrap();
            }
            writer.close().unwrap();
            dir.display().to_string()
        });
        let texts = list(dirs.iter().map(String::as_str));
        let attachment = AttachPlan {
            given: Given::new(dirs.to_vec()).unwrap(),
            catalog: "c".to_owned(),
            archive: None,
        };
        let view = |views_grow| {
            let ambient = Ambient {
                file: "duckdb-v1",
                views_grow,
                loom_dir: &|| None,
                stop: &|| false,
                threads: &|| 1,
                access: Access::All,
            };
            attachment.views(&ambient).unwrap().remove(0).1
        };
        assert_eq!(view(true), format!("FROM loom_scan({texts}, 's')"));
        assert_eq!(
            view(false),
            format!(
                "SELECT \"source\", \"ts\", \"ts_ns\", \"a\", \"B b\", \"addr\", \"dir\" FROM loom_scan({texts}, 's')"
            )
        );
    }

    #[test]
    fn names_are_quoted_whatever_they_hold() {
        let attachment = AttachPlan {
            given: Given::new(vec!["/it's/a \"run\".loom".to_owned()]).unwrap(),
            catalog: "my \"run\"".to_owned(),
            archive: None,
        };
        let shown = |source: &str, query: &str| ((SCHEMA, source.to_owned()), query.to_owned());
        let dirs = list(["/a", "/it's"].into_iter());
        let source = literal("o'x\"y");
        let views = [
            shown("a.b", "FROM x"),
            shown("o'x\"y", &format!("FROM loom_scan({dirs}, {source})")),
        ];
        let gone = [(BUILTIN_SCHEMA, "select".to_owned())];
        let statements = attachment.statements(&views, &gone);
        assert_eq!(
            statements[2..],
            [
                "ATTACH IF NOT EXISTS ':memory:' AS \"my \"\"run\"\"\" (READ_WRITE)",
                "CREATE SCHEMA IF NOT EXISTS \"my \"\"run\"\"\".loom",
                "DROP VIEW IF EXISTS \"my \"\"run\"\"\".loom.\"select\"",
                "CREATE OR REPLACE VIEW \"my \"\"run\"\"\".main.\"a.b\" AS FROM x",
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
