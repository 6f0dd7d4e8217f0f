//! `loom_series`, `loom_samples` and `loom_labels`: the values of time series, which the catalog's label index finds by their labels, and
//! the labels themselves.
//!
//! `loom_samples` and `loom_labels` number the series alike, so joining them gives the same rows as `loom_series`.

use std::sync::Arc;

use loom_engine::proven;
use loom_engine::query::{Poll, Predicate, SourcesScan};
use loom_engine::schema::{Catalog, LabelTest, METRIC_LABEL, SeriesId, Source};
use regex::Regex;

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::at::At;
use super::columns::{Column, columns};
use super::directory;
use super::function::{Bound, Function, Plan, SmallTable};
use super::parameters::{
    AT, COMPLETE, DIR, LABEL_NAMES, LABEL_PATTERNS, LAST, METRIC, SERIES_LABELS, T_FROM, T_TO,
};
use super::part::{Chosen, Part};
use super::paths::Given;
use super::selection::{newest, snapshots};
use super::stats::ScanEntry;
use super::time::TimeArguments;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;
use crate::exec::run::Run;
use crate::exec::samples::{SampleColumn, SamplesRun};
use crate::exec::series::{Series, SeriesPart, SeriesScan};

pub const SERIES: Function = Function {
    name: "loom_series",
    description: "The values of time series, selected by labels.",
    columns: "`ts`, `labels`, `value`, `ts_ns`, `dir`",
    examples: &[
        "FROM loom_series('telemetry.loom', 'http_requests_total', labels := MAP {'method': 'GET', 'code': '5..'}, last := INTERVAL 1 HOUR)",
    ],
    positional: &[DIR, METRIC],
    named: &[SERIES_LABELS, T_FROM, T_TO, LAST, AT, COMPLETE],
    bind: |arguments, ambient| {
        use SampleColumn::{Dir, Labels, Ts, TsNs, Value};
        SamplesPlan::bind(arguments, ambient, &[Ts, Labels, Value, TsNs, Dir])
    },
};

pub const SAMPLES: Function = Function {
    name: "loom_samples",
    description: "The values of time series, selected by labels, with the number of each series. loom_labels returns the labels, and loom_series both.",
    columns: "`series`, `ts`, `ts_ns`, `value`",
    examples: &[
        "FROM loom_samples('telemetry.loom', 'node_load1', label_names := ['job'], label_patterns := ['node'], last := INTERVAL 1 HOUR)",
    ],
    positional: &[DIR, METRIC],
    named: &[
        LABEL_NAMES,
        LABEL_PATTERNS,
        T_FROM,
        T_TO,
        LAST,
        AT,
        COMPLETE,
    ],
    bind: |arguments, ambient| {
        use SampleColumn::{Series, Ts, TsNs, Value};
        SamplesPlan::bind(arguments, ambient, &[Series, Ts, TsNs, Value])
    },
};

pub const LABELS: Function = Function {
    name: "loom_labels",
    description: "The labels of time series, one in each row, with the source and the field that hold the values.",
    columns: "`dir`, `source`, `field`, `series`, `label`, `value`",
    examples: &["FROM loom_labels('telemetry.loom', 'node_load1')"],
    positional: &[DIR, METRIC],
    named: &[LABEL_NAMES, LABEL_PATTERNS],
    bind: |arguments, ambient| {
        let asked = Asked::bind(arguments, ambient)?;
        let columns = columns(&[
            ("dir", SqlType::Text),
            ("source", SqlType::Text),
            ("field", SqlType::Text),
            ("series", SqlType::U64),
            ("label", SqlType::Text),
            ("value", SqlType::Text),
        ]);
        Ok(SmallTable::bound(columns, move |ambient| {
            labels(&asked, ambient)
        }))
    },
};

/// The series that a call asks for.
struct Asked {
    given: Given,
    /// Labels, and the test that the value of each must pass.
    tests: Vec<(String, LabelTest)>,
}

/// The characters with a meaning in regular expressions.
const SYNTAX: &[char] = &[
    '\\', '.', '+', '*', '?', '(', ')', '|', '[', ']', '{', '}', '^', '$',
];

/// A source of one directory, and its fields that hold requested series.
struct Group {
    source: Arc<Source>,
    fields: Vec<usize>,
}

impl Asked {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<Asked> {
        let mut tests = Vec::new();
        if let Some(metric) = arguments.text(METRIC.name)? {
            let metric = LabelTest::OneOf(vec![metric.to_owned()]);
            tests.push((METRIC_LABEL.to_owned(), metric));
        }
        let names = arguments.texts(LABEL_NAMES.name)?.unwrap_or_default();
        let patterns = arguments.texts(LABEL_PATTERNS.name)?.unwrap_or_default();
        if names.len() != patterns.len() {
            return Err(Problem::binder(format!(
                "label_names has {} items and label_patterns {}; give one pattern for each name",
                names.len(),
                patterns.len()
            )));
        }
        let by_label = arguments.text_map(SERIES_LABELS.name)?.unwrap_or_default();
        for (name, pattern) in names.into_iter().zip(patterns).chain(by_label) {
            tests.push((name, test_of(&pattern)?));
        }
        Ok(Asked {
            given: arguments.directories(ambient)?,
            tests,
        })
    }

    fn groups(&self, catalog: &Catalog) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for SeriesId { source, field } in catalog.label_index().select(&self.tests) {
            match groups.last_mut() {
                Some(group) if group.source.id == source => group.fields.push(field),
                _ => groups.extend(catalog.source(source).map(|source| Group {
                    source: Arc::clone(source),
                    fields: vec![field],
                })),
            }
        }
        groups
    }
}

/// Compiles a regular expression for the whole value, as Prometheus does. A pattern that only lists values, with `|` between them, becomes
/// a lookup; any other pattern is tried on each known value.
fn test_of(pattern: &str) -> Result<LabelTest> {
    let values = pattern.split('|');
    if values.clone().all(|value| !value.contains(SYNTAX)) {
        return Ok(LabelTest::OneOf(values.map(str::to_owned).collect()));
    }
    match Regex::new(&format!("^(?:{pattern})$")) {
        Ok(regex) => Ok(LabelTest::Fits(Box::new(move |value| {
            regex.is_match(value)
        }))),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default();
            Err(Problem::binder(format!(
                "'{pattern}' is not a regular expression: {why}; escape special characters with \\"
            )))
        }
    }
}

/// The number of a series: the same for the same directories in the same order.
fn number(directory: usize, source: &Source, field: usize) -> u64 {
    (directory as u64) << 32 | u64::from(source.id.0) << 16 | field as u64
}

fn labels(asked: &Asked, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
    let mut rows = Vec::new();
    let snapshots = snapshots(&asked.given, None, ambient)?;
    for (directory, (dir, snapshot)) in snapshots.into_iter().enumerate() {
        for Group { source, fields } in asked.groups(snapshot.catalog()) {
            for field in fields {
                let def = proven::at(&source.fields, field);
                for (label, value) in &def.series {
                    rows.push(vec![
                        Cell::from(dir.as_str()),
                        Cell::from(source.name.as_str()),
                        Cell::from(def.name.as_str()),
                        Cell::from(number(directory, &source, field)),
                        Cell::from(label.as_str()),
                        Cell::from(value.as_str()),
                    ]);
                }
            }
        }
    }
    Ok(rows)
}

/// The arguments that choose samples.
pub struct SamplesAsked {
    asked: Asked,
    times: TimeArguments,
    at: Option<At>,
    complete: bool,
}

struct SamplesPlan {
    samples: SamplesAsked,
    shown: &'static [SampleColumn],
    columns: Vec<Column>,
}

/// A source of one directory at one instant.
struct GroupPart {
    /// The position of the directory among those given.
    directory: usize,
    part: Part,
    /// The requested fields.
    fields: Vec<usize>,
}

impl SamplesPlan {
    fn bind(
        arguments: &Arguments,
        ambient: &Ambient<'_>,
        shown: &'static [SampleColumn],
    ) -> Result<Bound> {
        let column = |column: &SampleColumn| match column {
            SampleColumn::Series => Column::new("series", SqlType::U64),
            SampleColumn::Ts => Column::new("ts", SqlType::TimestampTz),
            SampleColumn::TsNs => Column::new("ts_ns", SqlType::I64),
            SampleColumn::Value => Column::new("value", SqlType::F64),
            SampleColumn::Labels => Column::new("labels", SqlType::TextMap),
            SampleColumn::Dir => Column::new("dir", SqlType::Text),
        };
        Ok(Box::new(SamplesPlan {
            samples: SamplesAsked::bind(arguments, ambient)?,
            columns: shown.iter().map(column).collect(),
            shown,
        }))
    }
}

impl Plan for SamplesPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let shown = projected.iter().map(|column| self.shown.get(*column));
        let scan = self.samples.start(ambient)?;
        Ok(Arc::new(SamplesRun::new(
            scan,
            shown.map(Option::<&_>::copied).collect(),
        )))
    }
}

impl SamplesAsked {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<SamplesAsked> {
        let asked = SamplesAsked {
            asked: Asked::bind(arguments, ambient)?,
            times: arguments.times()?,
            at: At::of(arguments)?,
            complete: arguments.boolean(COMPLETE.name)?.unwrap_or(false),
        };
        asked.times.range(None)?;
        match asked.at {
            // Without a position, the call looks at the published data when it runs; a position is checked at once.
            None => asked
                .asked
                .given
                .paths(ambient)?
                .iter()
                .try_for_each(|path| directory::open(path).map(drop))?,
            Some(_) => drop(asked.parts(ambient)?),
        }
        Ok(asked)
    }

    /// Starts to read the samples.
    pub fn start(&self, ambient: &Ambient<'_>) -> Result<SeriesScan> {
        let groups = self.parts(ambient)?;
        let parts: Vec<&Part> = groups.iter().map(|group| &group.part).collect();
        let range = self
            .times
            .range(newest(parts.iter().copied(), &self.times)?)?;
        if self.complete {
            let poll = Poll::new(ambient.stop);
            let spans = range.into();
            let mut parts = parts.iter();
            parts.try_for_each(|part| part.require_complete(&spans, &poll))?;
        }
        let mut series = Vec::new();
        let mut running = Vec::new();
        let mut chunks_before = 0;
        for groups in groups.chunk_by(|one, next| one.directory == next.directory) {
            let Some(GroupPart { part, .. }) = groups.first() else {
                continue;
            };
            let wanted = groups
                .iter()
                .map(|group| (group.part.source.id, group.fields.clone()));
            let scan = SourcesScan::new(&part.snapshot, wanted, range)?;
            let source = match groups.len() {
                1 => part.source.name.clone(),
                groups => format!("{groups} groups"),
            };
            let chunk_bytes = u64::from(part.snapshot.chunk_bytes());
            let chunks = part.snapshot.position() / chunk_bytes + 1;
            let dir: Arc<str> = part.dir.as_str().into();
            let mut places = Vec::new();
            let catalog = part.snapshot.catalog();
            let asked: usize = groups.iter().map(|group| group.fields.len()).sum();
            let share = |part: usize, whole: usize| part as f64 / whole.max(1) as f64;
            let shares = [
                share(groups.len(), catalog.sources().count()),
                share(asked, catalog.label_index().len()),
            ];
            for GroupPart {
                directory,
                part: Part { source, .. },
                fields,
            } in groups
            {
                let first = series.len();
                series.extend(fields.iter().map(|&field| Series {
                    number: number(*directory, source, field),
                    dir: Arc::clone(&dir),
                    source: Arc::clone(source),
                    field,
                }));
                places.push(fields.iter().copied().zip(first..).collect());
            }
            running.push(SeriesPart {
                stats: ScanEntry::pending(&part.dir, &source),
                scan,
                groups: places,
                chunks_before,
                shares,
            });
            chunks_before += chunks;
        }
        SeriesScan::new(series, running, range, &Poll::new(ambient.stop))
    }

    fn parts(&self, ambient: &Ambient<'_>) -> Result<Vec<GroupPart>> {
        let snapshots = snapshots(&self.asked.given, self.at.as_ref(), ambient)?;
        let mut parts = Vec::new();
        for (directory, (dir, snapshot)) in snapshots.into_iter().enumerate() {
            for Group { source, fields } in self.asked.groups(snapshot.catalog()) {
                let all = Chosen {
                    index: None,
                    keys: None,
                    filter: Predicate::All,
                };
                parts.push(GroupPart {
                    directory,
                    fields,
                    part: Part::new(dir.clone(), snapshot.clone(), source, all),
                });
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_for_all_of_a_value() {
        let holds = |pattern: &str, value: &str| test_of(pattern).unwrap().holds(value);
        assert!(holds("5..", "503") && !holds("5..", "1503") && !holds("5..", "5031"));
        assert!(holds("GET|POST", "POST") && !holds("GET|POST", "POSTS"));
        assert!(holds("GET", "GET") && !holds("GET", "get"));
        assert!(holds("a-1|", "a-1") && holds("a-1|", "") && !holds("a-1|", "a"));
        assert!(holds("", "") && holds(".*", "") && !holds(".+", ""));
        let Err(problem) = test_of("a(b") else {
            panic!("a parenthesis stays open")
        };
        assert!(
            problem
                .to_string()
                .contains("'a(b' is not a regular expression: ")
        );
    }
}
