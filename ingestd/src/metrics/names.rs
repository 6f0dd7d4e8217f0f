//! Names of the sources and fields that hold series, and the mark of such a source.

use std::collections::BTreeMap;
use std::fmt::Write;

use loom_engine::schema::{FieldDef, METRIC_LABEL, Source, TimeKind};

/// The labels of a series, with the metric's name among them.
pub(super) type Series = BTreeMap<String, String>;

/// The prefix of the names of all sources that hold series.
const PREFIX: &str = "metrics/";
/// The longest part of a source's name that a sender gives.
const PART_BYTES_MAX: usize = 100;

/// The source of the first group of a target.
pub(super) fn of_target(job: &str, instance: &str) -> String {
    format!("{PREFIX}{job}/{instance}")
}

/// The source of the first group of a sender, whose names may be any text.
pub(super) fn of_sender(job: &str, instance: &str) -> String {
    of_target(&part(job), &part(instance))
}

/// Makes a text fit between two slashes of a source's name.
fn part(text: &str) -> String {
    let fit = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    let mut part: String = text.chars().map(fit).collect();
    part.truncate(part.floor_char_boundary(PART_BYTES_MAX));
    part
}

/// True for a source that holds series, or nothing yet.
pub(super) fn holds_series(source: &Source) -> bool {
    let is_series = |field: &FieldDef| field.nullable && !field.series.is_empty();
    source.time == TimeKind::Own && source.fields.iter().all(is_series)
}

/// True if a source may be forgotten with its records. One that was closed stays closed.
pub(crate) fn is_forgettable(source: &Source) -> bool {
    let is_named = source.name.starts_with(PREFIX) && !source.fields.is_empty();
    is_named && source.is_open() && holds_series(source)
}

/// A series as Prometheus writes it, without the labels that all series of its target share.
pub(super) fn shown(series: &Series, shared: &[String]) -> String {
    let mut text = series.get(METRIC_LABEL).cloned().unwrap_or_default();
    let is_own = |label: &String| label != METRIC_LABEL && !shared.contains(label);
    let mut labels = series.iter().filter(|(label, _)| is_own(label)).peekable();
    if labels.peek().is_some() {
        let mut before = '{';
        for (label, value) in labels {
            let value = value.replace(char::is_control, " ");
            write!(text, "{before}{label}=\"{value}\"").expect("a text takes all");
            before = ',';
        }
        text.push('}');
    }
    text
}
