//! Sources as tables: the statements that create an in-memory catalog with a view for each source of a directory, and two for each of its indexes,
//! which a dashboard can live on. DuckDB 2 runs them in place of a pragma; the table function `loom_attach` lists them.
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
    about: "the folder that 'ingestd archive' wrote of the directory: the views of sources then hold its records too, up to the address that it has reached now",
    omitted: Some(NO_ARCHIVE),
};

/// What an archive is called that is omitted.
const NO_ARCHIVE: &str = "no archive";

/// The schema of the views of built-in sources. A catalog that has it is one of ours.
const BUILTIN_SCHEMA: &str = "loom";
const SCHEMA: &str = "main";

/// A variable that exists during one statement.
const CHECKED: &str = "loom_attach_checked";

/// Of the views of indexes: a dashboard asks for them all the time, and bins answer in a hundredth of it.
const QUANTILES: &str = ", quantiles := [0.5, 0.9, 0.99, 0.999, 0.9999], approx := true";

/// The alerts of a directory whose daemon has had no rule: none, with the columns that others have, so that a dashboard needs no rule to open.
fn no_alerts() -> String {
    format!(
        "SELECT NULL::VARCHAR AS source, NULL::TIMESTAMPTZ AS ts, NULL::BIGINT AS ts_ns, NULL::VARCHAR AS rule, \
         NULL::{} AS state, NULL::DOUBLE AS value, NULL::DOUBLE AS threshold, NULL::TIMESTAMP_NS AS from_ts, NULL::TIMESTAMP_NS AS to_ts, \
         NULL::UBIGINT AS position, NULL::VARCHAR AS detail, NULL::UBIGINT AS addr, NULL::VARCHAR AS dir WHERE false",
        SqlType::Enum(&ALERT_STATES).name()
    )
}

/// The part of a directory's name that its catalog's default name leaves out.
const SUFFIX: &str = ".loom";

/// A view's schema and name.
pub type ViewName = (&'static str, String);

/// A source, and the directories that have it, in SQL.
struct ViewSource {
    source: Arc<Source>,
    /// The first that has it.
    path: PathBuf,
    dirs: String,
    /// The columns of `loom_scan`: the fields of the directory that has most.
    columns: Vec<Column>,
    /// Open in all of these directories.
    indexes: Vec<IndexShown>,
}

/// A source as it is met in one directory after the other.
struct Met<'a> {
    source: Arc<Source>,
    columns: Vec<Column>,
    holders: Vec<&'a PathBuf>,
    indexes: Vec<IndexShown>,
}

struct IndexShown {
    name: String,
    has_values: bool,
}

/// A view's name, and the query that it stands for.
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

/// Directories, and the catalog that shows them.
pub struct AttachPlan {
    given: Given,
    pub catalog: String,
    archive: Option<String>,
}

impl AttachPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<AttachPlan> {
        // A view goes on meaning these directories where the process changes its own.
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
                "dir names several directories, and an archive is that of one; attach each with its own",
            ));
        }
        Ok(AttachPlan {
            given,
            catalog,
            archive,
        })
    }

    /// The archive that was given, as it is now.
    fn archive(&self, ambient: &Ambient<'_>) -> Result<Option<Archive>> {
        match (&self.archive, self.given.paths(ambient)?.as_slice()) {
            (Some(given), [path]) => {
                Archive::open(given, &*directory::open(path)?, ambient).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The views of the sources as they are now: first one of each source, then those of indexes, which give way to a source of the same name.
    pub fn views(&self, ambient: &Ambient<'_>) -> Result<Vec<View>> {
        // Before the sources: what the archive has of them, they have.
        let archive = self.archive(ambient)?;
        let sources = self.sources(ambient)?;
        let mut taken = BTreeSet::new();
        let mut views = Vec::new();
        for (shown, number) in sources.iter().zip(1..) {
            let schema = match is_builtin(&shown.source.name) {
                true => BUILTIN_SCHEMA,
                false => SCHEMA,
            };
            let name = free_name(&mut taken, schema, shown.source.name.clone(), number);
            let (dirs, source) = (&shown.dirs, literal(&shown.source.name));
            let archive = archive.as_ref();
            let both = archive.and_then(|archive| archive.query(&shown.source, &shown.path));
            let scan = || match ambient.views_grow {
                true => format!("FROM loom_scan({dirs}, {source})"),
                false => {
                    let names = shown.columns.iter().map(|column| identifier(&column.name));
                    let names: Vec<String> = names.collect();
                    format!(
                        "SELECT {} FROM loom_scan({dirs}, {source})",
                        names.join(", ")
                    )
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
            let (dirs, source) = (&shown.dirs, literal(&shown.source.name));
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

    /// In the order in which they are first met, each with the directories that have it.
    fn sources(&self, ambient: &Ambient<'_>) -> Result<Vec<ViewSource>> {
        let paths = self.given.paths(ambient)?;
        let mut sources: Vec<Met<'_>> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for path in &paths {
            let snapshot = directory::open(path)?.snapshot()?;
            for source in snapshot.catalog().sources() {
                let place = *places.entry(source.name.clone()).or_insert(sources.len());
                let indexes = open_indexes(source);
                let columns = columns::of_source(&source.name, &source.fields);
                match sources.get_mut(place) {
                    Some(met) => {
                        if columns.len() > met.columns.len() {
                            met.columns = columns;
                        }
                        met.holders.push(path);
                        met.indexes.retain(|index| {
                            let mut others = indexes.iter();
                            others.any(|other| other.name == index.name)
                        });
                    }
                    None => sources.push(Met {
                        source: Arc::clone(source),
                        columns,
                        holders: vec![path],
                        indexes,
                    }),
                }
            }
        }
        let shown = sources.into_iter().map(|met| {
            let Met {
                source,
                columns,
                holders,
                indexes,
            } = met;
            // What was given, where all of it has the source: a glob then goes on meaning what it matches.
            let dirs = match holders.len() == paths.len() {
                true => list(self.given.texts().iter().map(String::as_str)),
                false => {
                    let texts = holders.iter().map(|path| text(path));
                    list(texts.collect::<Result<Vec<_>>>()?.into_iter())
                }
            };
            Ok(ViewSource {
                source,
                path: PathBuf::clone(
                    holders
                        .first()
                        .expect("a source that is listed is in a directory"),
                ),
                dirs,
                columns,
                indexes,
            })
        });
        shown.collect()
    }

    /// In the order in which they are to run.
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
    fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let statements = self.statements(&self.views(ambient)?, &[]);
        let row = |statement| vec![Cell::Text(format!("{statement};"))];
        Ok(statements.into_iter().map(row).collect())
    }

    /// For the pragma: one text, which ends with a query of the tables that are there now.
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

/// The name, or where it is taken one with the number. SQL ignores the case of names.
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
