//! `loom_why`: what separates selected records of a source from others, field by field and value by value, and how the other sources
//! changed at the same time.

use std::sync::Arc;

use loom_engine::Timestamp;
use loom_engine::query::{Contrast, ContrastAsked, Poll, Predicate, contrast};
use loom_engine::schema::{FieldDef, RangeSet};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::{Column, columns};
use super::datum::TIMESTAMP_INFINITY;
use super::function::{Bound, Function, SmallTable};
use super::parameters::{
    AGAINST, AT, COMPLETE, DIR, FILTER, INDEX, SOURCE, T_FROM, T_TO, TOP_VALUES, V_MAX, V_MIN,
};
use super::part::{Chosen, Part};
use super::selection::Selection;
use super::stats;
use super::time::TimeArguments;
use super::types::SqlType;
use super::why_fields::{self, FieldRow};
use super::why_sources::{self, SourceRow, Window, Windows};
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

const VALUES_DEFAULT: u64 = 16;
/// The most rows of a field.
const VALUES_MOST: u64 = 1024;
/// The most fields, because each takes memory.
const FIELDS_MOST: usize = 256;

pub const FUNCTION: Function = Function {
    name: "loom_why",
    description: "What separates the selected records of a source, those of a window with a value of the index from v_min to v_max, from others: a row for each field and value or bin, the greatest score first, and a row for each other source. NULL for t_from, t_to, v_min or v_max is no bound.",
    columns: "`source`, `field`, `kind` ('value', 'bin', 'null', 'others' or 'source'), `value`, `lower`, `upper`, `selected`, `selected_share`, `other`, `other_share`, `difference`, `score`, `all_values`, `filter`, `rate`, `rate_before`, `p50`, `p50_before`, `p99`, `p99_before`",
    examples: &[
        "FROM loom_why('telemetry.loom', 'requests', 'latency', NULL, NULL, 1000000, NULL)",
        "FROM loom_why('telemetry.loom', 'requests', NULL, now() - INTERVAL 5 MINUTE, now(), NULL, NULL, against := 'before')",
    ],
    positional: &[DIR, SOURCE, INDEX, T_FROM, T_TO, V_MIN, V_MAX],
    named: &[AGAINST, FILTER, TOP_VALUES, AT, COMPLETE],
    bind,
};

/// The records that the selected ones are compared with.
#[derive(Copy, Clone, PartialEq)]
enum Against {
    Rest,
    Window,
    Before,
}

struct Why {
    selection: Selection,
    against: Against,
    windows: Windows,
    values: usize,
}

fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<Bound> {
    let (selection, parts) = Selection::bind(arguments, ambient)?;
    let against = match arguments.text(AGAINST.name)? {
        None | Some("rest") => Against::Rest,
        Some("window") => Against::Window,
        Some("before") => Against::Before,
        Some(other) => {
            return Err(Problem::binder(format!(
                "against takes 'rest', 'window' or 'before', not '{other}'"
            )));
        }
    };
    let values = arguments.count(TOP_VALUES.name)?.unwrap_or(VALUES_DEFAULT);
    if !(1..=VALUES_MOST).contains(&values) {
        return Err(Problem::binder(format!(
            "top_values must be from 1 to {VALUES_MOST}: it is {values}"
        )));
    }
    let windows = windows(arguments)?;
    if against == Against::Before && windows.before.is_none() {
        return Err(Problem::binder(
            "against := 'before' needs t_from and t_to: it reads the window of the same length that ends at t_from",
        ));
    }
    for part in &parts {
        fields(&part.chosen, selection.fields())?;
    }
    let why = Why {
        selection,
        against,
        windows,
        values: values as usize,
    };
    Ok(SmallTable::bound(declared(), move |ambient| {
        why.rows(ambient)
    }))
}

fn declared() -> Vec<Column> {
    columns(&[
        ("source", SqlType::Text),
        ("field", SqlType::Text),
        ("kind", SqlType::Text),
        ("value", SqlType::Text),
        ("lower", SqlType::F64),
        ("upper", SqlType::F64),
        ("selected", SqlType::I64),
        ("selected_share", SqlType::F64),
        ("other", SqlType::I64),
        ("other_share", SqlType::F64),
        ("difference", SqlType::F64),
        ("score", SqlType::F64),
        ("all_values", SqlType::Bool),
        ("filter", SqlType::Text),
        ("rate", SqlType::F64),
        ("rate_before", SqlType::F64),
        ("p50", SqlType::F64),
        ("p50_before", SqlType::F64),
        ("p99", SqlType::F64),
        ("p99_before", SqlType::F64),
    ])
}

/// The window, and the one of the same length before it.
fn windows(arguments: &Arguments) -> Result<Windows> {
    let bound = |name| -> Result<Option<i64>> {
        let time = arguments.timestamp(name)?;
        Ok(time.filter(|time| time.unsigned_abs() != TIMESTAMP_INFINITY as u64))
    };
    let range = |t_from, t_to| {
        let times = TimeArguments {
            t_from,
            t_to,
            ..TimeArguments::default()
        };
        times.range(None)
    };
    let times = arguments.times()?;
    let before = match (bound(T_FROM.name)?, bound(T_TO.name)?) {
        (Some(from), Some(to)) if from < to => {
            let micros = to.saturating_sub(from);
            let before = range(Some(from.saturating_sub(micros)), Some(from))?;
            Some(Window {
                time: before,
                seconds: micros as f64 / 1e6,
            })
        }
        _ => None,
    };
    Ok(Windows {
        now: times.range(None)?,
        before,
    })
}

/// The fields to compare: all except the one by whose values the records are selected.
fn fields(chosen: &Chosen, defined: &[FieldDef]) -> Result<Vec<usize>> {
    let selected_by = chosen.keys.as_ref().and(chosen.index.as_ref());
    let selected_by = selected_by.and_then(|index| index.value_field());
    let fields = 0..defined.len();
    let fields: Vec<usize> = fields.filter(|field| Some(*field) != selected_by).collect();
    if fields.len() > FIELDS_MOST {
        return Err(Problem::binder(format!(
            "loom_why compares at most {FIELDS_MOST} fields, and the source has {}; use loom_series for metrics",
            fields.len()
        )));
    }
    Ok(fields)
}

/// Both groups together, and the selected records among them.
fn groups(chosen: &Chosen, against: Against, windows: Windows) -> (Predicate, Predicate) {
    let now = Predicate::time(windows.now);
    let keys = match (&chosen.index, &chosen.keys) {
        (Some(index), Some(keys)) => Predicate::keys(index.id, keys.clone()),
        _ => Predicate::All,
    };
    let of_index = chosen.index.as_ref().and_then(|index| index.filter());
    let of_index = of_index.map_or(Predicate::All, |filter| {
        Predicate::Fields(Arc::new(filter.expr().clone()))
    });
    let selected = Predicate::and([now.clone(), keys]);
    let times = match (against, windows.before) {
        (Against::Before, Some(before)) => {
            Predicate::or([selected.clone(), Predicate::time(before.time)])
        }
        _ => now,
    };
    let all = Predicate::and([times, of_index, chosen.filter.clone()]);
    (all, selected)
}

impl Why {
    fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let parts = self.selection.now(ambient)?;
        let before = self.windows.before.map(|before| before.time);
        let spans = match (self.against, before) {
            (Against::Before, Some(before)) => vec![before, self.windows.now],
            _ => vec![self.windows.now],
        };
        let spans = RangeSet::<Timestamp>::union(spans.into_iter().map(RangeSet::from));
        self.selection.require_complete(&parts, &spans, ambient)?;
        let poll = Poll::new(ambient.stop);
        let threads = (ambient.threads)();
        let found = self.contrast(&parts, threads, &poll)?;
        let defined = self.selection.fields();
        let of_fields = why_fields::rows(&found, defined, self.values);
        let of_sources = why_sources::rows(&parts, self.windows, threads, &poll)?;
        stats::remember_all(&parts);
        let of_fields = of_fields
            .into_iter()
            .map(|row| self.field_cells(row, &found, defined));
        let of_sources = of_sources.into_iter().map(source_cells);
        Ok(of_fields.chain(of_sources).collect())
    }

    fn contrast(&self, parts: &[Part], threads: usize, poll: &Poll<'_>) -> Result<Contrast> {
        let groups = |part: &Part| groups(&part.chosen, self.against, self.windows);
        let groups: Vec<(Predicate, Predicate)> = parts.iter().map(groups).collect();
        let asked = parts.iter().zip(&groups);
        let asked = asked.map(|(part, (all, selected))| ContrastAsked {
            snapshot: &part.snapshot,
            source: part.source.id,
            all,
            selected,
        });
        let first = parts.first().expect("a call reads at least one directory");
        let fields = fields(&first.chosen, self.selection.fields())?;
        let asked: Vec<ContrastAsked<'_>> = asked.collect();
        Ok(contrast(&asked, &fields, threads, poll)?)
    }

    fn field_cells(&self, row: FieldRow, found: &Contrast, defined: &[FieldDef]) -> Vec<Cell> {
        let (counts, records) = (row.counts, found.records);
        // The window holds the selected records too.
        let (other, others) = match self.against {
            Against::Window => (counts.total(), records.total()),
            Against::Rest | Against::Before => (counts.others, records.others),
        };
        let share = |count: u64, all: u64| (all > 0).then(|| count as f64 / all as f64);
        let selected_share = share(counts.selected, records.selected);
        let other_share = share(other, others);
        let difference = selected_share.zip(other_share);
        let difference = difference.map(|(selected, other)| selected - other);
        let name = defined.get(row.field).map(|field| field.name.clone());
        let cells = [
            Cell::from(self.selection.source.as_str()),
            text(name),
            Cell::from(row.kind),
            text(row.value),
            float(row.lower),
            float(row.upper),
            Cell::from(counts.selected),
            float(selected_share),
            Cell::from(other),
            float(other_share),
            float(difference),
            Cell::Float(row.score),
            Cell::Bool(row.all_values),
            text(row.filter),
        ];
        cells.into_iter().chain([const { Cell::Null }; 6]).collect()
    }
}

fn source_cells(row: SourceRow) -> Vec<Cell> {
    let [p50, p99] = row.quantiles;
    let [p50_before, p99_before] = row.quantiles_before;
    vec![
        Cell::Text(row.source),
        text(row.index),
        Cell::from("source"),
        Cell::Null,
        Cell::Null,
        Cell::Null,
        Cell::from(row.records),
        Cell::Null,
        Cell::from(row.records_before.map(Cell::from)),
        Cell::Null,
        Cell::Null,
        Cell::Float(row.score),
        Cell::Null,
        Cell::Null,
        float(row.rate),
        float(row.rate_before),
        float(p50),
        float(p50_before),
        float(p99),
        float(p99_before),
    ]
}

fn text(text: Option<String>) -> Cell {
    Cell::from(text.map(Cell::Text))
}

fn float(value: Option<f64>) -> Cell {
    Cell::from(value.map(Cell::Float))
}
