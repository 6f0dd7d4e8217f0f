//! The declaration of a source, which people write in TOML, and clients and the catalog in JSON.

use serde::{Deserialize, Serialize};
use toml::de::{DeTable, DeValue};

use super::field::FieldDef;
use super::index::{INDEXES_MAX, IndexDef};
use super::layout::{Layout, TimeKind};
use super::names::{check_name, is_builtin, shown};
use crate::error::{Error, Result};

/// The policy for a source's records when the log does not keep up.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overload {
    /// The producers wait.
    #[default]
    Block,
    /// New records are dropped and counted.
    DropNew,
}

/// A source as it is declared.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceDef {
    pub name: String,
    #[serde(default)]
    pub time: TimeKind,
    #[serde(default)]
    pub on_overload: Overload,
    #[serde(rename = "field", default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldDef>,
    #[serde(rename = "index", default, skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<IndexDef>,
}

/// The part of a definition that an error concerns; fields and indexes count from 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Part {
    Whole,
    Field(usize),
    Index(usize),
}

impl SourceDef {
    /// A source with arrival times that blocks under overload, without fields or indexes.
    pub fn new(name: impl Into<String>) -> SourceDef {
        SourceDef {
            name: name.into(),
            time: TimeKind::default(),
            on_overload: Overload::default(),
            fields: Vec::new(),
            indexes: Vec::new(),
        }
    }

    /// Checks that a user may define this source: names, types, limits, bins and filters.
    pub fn validate(&self) -> Result<()> {
        self.check_as_user().map_err(|(_, error)| error)
    }

    /// As `validate`, but accepts built-in sources too.
    pub(super) fn check(&self) -> Result<()> {
        self.check_parts().map_err(|(_, error)| error)
    }

    fn check_as_user(&self) -> Result<(), (Part, Error)> {
        if is_builtin(&self.name) {
            let message = format!(
                "a source may not be called '{}': names that start with loom_ are built in; use another name",
                shown(&self.name, 64)
            );
            return Err((Part::Whole, Error::Schema(message)));
        }
        self.check_parts()
    }

    fn check_parts(&self) -> Result<(), (Part, Error)> {
        let in_source = |error| Error::schema(format!("source '{}': {error}", self.name));
        let whole = |error| (Part::Whole, error);
        check_name("source", &self.name).map_err(whole)?;
        // The layout is checked first, because it limits the number of fields and so the work below.
        Layout::new(self.time, &self.fields)
            .map_err(in_source)
            .map_err(whole)?;
        check_fields(&self.fields).map_err(|(part, error)| (part, in_source(error)))?;
        self.check_indexes()
            .map_err(|(part, error)| (part, in_source(error)))
    }

    fn check_indexes(&self) -> Result<(), (Part, Error)> {
        if self.indexes.len() > INDEXES_MAX {
            let message = format!(
                "{} indexes are declared; the limit is {INDEXES_MAX}",
                self.indexes.len()
            );
            return Err((Part::Whole, Error::Schema(message)));
        }
        for (i, index) in self.indexes.iter().enumerate() {
            index
                .check(&self.fields)
                .map_err(|error| (Part::Index(i), error))?;
            if self
                .indexes
                .iter()
                .take(i)
                .any(|earlier| earlier.name == index.name)
            {
                let message = format!("there are two indexes '{}'", index.name);
                return Err((Part::Index(i), Error::Schema(message)));
            }
        }
        Ok(())
    }
}

fn check_fields(fields: &[FieldDef]) -> Result<(), (Part, Error)> {
    let mut seen = std::collections::HashSet::new();
    for (i, field) in fields.iter().enumerate() {
        field.check().map_err(|error| (Part::Field(i), error))?;
        // SQL ignores the case of column names.
        if !seen.insert(field.name.to_ascii_lowercase()) {
            let message = format!("there are two fields '{}' (SQL ignores case)", field.name);
            return Err((Part::Field(i), Error::Schema(message)));
        }
    }
    Ok(())
}

/// A file that holds `[[source]]` tables and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourcesFile {
    #[serde(rename = "source", default)]
    sources: Vec<SourceDef>,
}

/// Parses and checks the `[[source]]` tables of a TOML text. Errors name the line.
pub fn parse_sources(toml: &str) -> Result<Vec<SourceDef>> {
    let file: SourcesFile =
        toml::from_str(toml).map_err(|error| Error::schema(error.to_string().trim_end()))?;
    validate_sources(toml, &file.sources)?;
    Ok(file.sources)
}

/// Checks sources that were parsed from the `[[source]]` tables of `toml`, for a file that has other tables too. Errors name the line.
pub fn validate_sources(toml: &str, sources: &[SourceDef]) -> Result<()> {
    for (i, source) in sources.iter().enumerate() {
        let checked = source.check_as_user().and_then(|()| {
            if sources
                .iter()
                .take(i)
                .any(|earlier| earlier.name == source.name)
            {
                let message = format!("there are two sources '{}'", source.name);
                return Err((Part::Whole, Error::Schema(message)));
            }
            Ok(())
        });
        if let Err((part, error)) = checked {
            return Err(match line_of(toml, i, part) {
                Some(line) => Error::schema(format!("line {line}: {error}")),
                None => error,
            });
        }
    }
    Ok(())
}

/// The line, from 1, where a part of the n-th source begins.
fn line_of(toml: &str, source: usize, part: Part) -> Option<usize> {
    let document = DeTable::parse(toml).ok()?;
    let source = item(document.get_ref(), "source", source)?;
    let offset = match (part, source.get_ref().as_table()?) {
        (Part::Whole, _) => source.span().start,
        (Part::Field(i), table) => item(table, "field", i)?.span().start,
        (Part::Index(i), table) => item(table, "index", i)?.span().start,
    };
    Some(1 + toml.get(..offset)?.matches('\n').count())
}

fn item<'a, 'i>(
    table: &'a DeTable<'i>,
    key: &str,
    ordinal: usize,
) -> Option<&'a toml::Spanned<DeValue<'i>>> {
    table.get(key)?.get_ref().as_array()?.get(ordinal)
}

#[cfg(test)]
mod tests {
    use super::super::{BinsDef, FieldType, Number};
    use super::*;

    const REDIS: &str = r#"
[[source]]
name = "redis_request"
time = "own"
on_overload = "drop_new"
[[source.field]]
name = "latency_ns"
type = "u64"
[[source.field]]
name = "op"
type = "u8"
labels = { 1 = "GET", 2 = "SET" }
[[source.index]]
name = "latency"
value = "latency_ns"
[[source.index]]
name = "set_latency"
value = "latency_ns"
where = "op = 'SET'"
bins = { from = 1000, factor = 2, count = 24 }

[[source]]
name = "raw"
"#;

    fn refused(toml: &str) -> String {
        parse_sources(toml).unwrap_err().to_string()
    }

    #[test]
    fn sources_are_read_as_documented() {
        let sources = parse_sources(REDIS).unwrap();
        let [redis, raw] = sources.as_slice() else {
            panic!("{sources:?}")
        };
        assert_eq!(
            (redis.time, redis.on_overload),
            (TimeKind::Own, Overload::DropNew)
        );
        assert_eq!(redis.fields[0], FieldDef::new("latency_ns", FieldType::U64));
        assert_eq!(redis.fields[1].label_value("SET"), Some(2));
        assert_eq!(redis.indexes[0].bins, BinsDef::Auto);
        assert_eq!(redis.indexes[1].filter.as_deref(), Some("op = 'SET'"));
        let bins = BinsDef::Geometric {
            from: Number::Int(1000),
            factor: Number::Int(2),
            count: 24,
        };
        assert_eq!(redis.indexes[1].bins, bins);
        assert_eq!(raw, &SourceDef::new("raw"));
    }

    #[test]
    fn definitions_survive_json() {
        for source in parse_sources(REDIS).unwrap() {
            let json = serde_json::to_string(&source).unwrap();
            assert_eq!(
                serde_json::from_str::<SourceDef>(&json).unwrap(),
                source,
                "{json}"
            );
        }
    }

    #[test]
    fn errors_name_the_line() {
        let at = |from: &str, to: &str| refused(&REDIS.replace(from, to));
        assert!(at("\"redis_request\"", "\"loom_x\"").starts_with("line 2: "));
        assert!(at("\"latency_ns\"\ntype", "\"ts\"\ntype").starts_with("line 6: "));
        assert!(at("name = \"op\"", "name = \"LATENCY_NS\"").starts_with("line 9: "));
        assert!(at("op = 'SET'", "op = 'DEL'").starts_with("line 16: "));
        assert!(at("\"set_latency\"", "\"latency\"").starts_with("line 16: "));
        assert!(at("name = \"raw\"", "name = \"redis_request\"").starts_with("line 22: "));
        let unknown = at("time =", "tiem =");
        assert!(
            unknown.contains("line 4") && unknown.contains("tiem"),
            "{unknown}"
        );
        let syntax = at("time = \"own\"", "time = ");
        assert!(syntax.contains("line 4"), "{syntax}");
        let ty = at("\"u64\"", "\"int\"");
        assert!(
            ty.contains("line 8") && ty.contains("unknown field type 'int'"),
            "{ty}"
        );
        let bins = at("factor = 2, ", "");
        assert!(
            bins.contains("line 20") && bins.contains("either step or factor"),
            "{bins}"
        );
    }

    #[test]
    fn other_tables_are_refused() {
        assert!(refused("[log]\nchunk = \"64KiB\"\n").contains("unknown field `log`"));
        assert_eq!(parse_sources("").unwrap(), []);
    }

    #[test]
    fn limits_hold() {
        let fields = |n: usize, ty| {
            let field = |i| FieldDef::new(format!("f{i}"), ty);
            SourceDef {
                fields: (0..n).map(field).collect(),
                ..SourceDef::new("x")
            }
        };
        assert!(fields(1000, FieldType::Utf8).validate().is_ok());
        assert!(fields(1001, FieldType::U8).validate().is_err());
        assert!(fields(1, FieldType::Char(65_528)).validate().is_ok());
        assert!(fields(1, FieldType::Char(65_529)).validate().is_err());
        assert!(fields(2, FieldType::Bytes(40_000)).validate().is_err());
        let indexes = |n: usize| {
            let index = |i| IndexDef::new(format!("i{i}"), None);
            SourceDef {
                indexes: (0..n).map(index).collect(),
                ..SourceDef::new("x")
            }
        };
        assert!(indexes(64).validate().is_ok());
        assert!(indexes(65).validate().is_err());
    }

    #[test]
    fn hostile_toml_is_an_error() {
        assert!(parse_sources(&"[".repeat(100_000)).is_err());
        assert!(parse_sources(&format!("x = {}", "[".repeat(100_000))).is_err());
        assert!(parse_sources(&format!("source = [{}]", "{},".repeat(1000))).is_err());
    }
}
