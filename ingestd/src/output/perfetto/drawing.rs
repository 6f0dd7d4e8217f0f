//! How the records of a source are drawn, from the names and types of its fields.

use loom_engine::schema::{FieldDef, FieldType, Index, Source};

use super::wire::Unit;

/// The lengths of records in nanoseconds, the first that a source has.
const LENGTHS: [&str; 3] = ["latency_ns", "duration_ns", "ran_ns"];

/// Fields are places among those of the source.
pub(super) struct Drawing {
    pub place: Place,
    /// The field that names an event, or else its source does.
    pub name: Option<usize>,
    pub length: Option<usize>,
    /// A span's time is its start; that of other records is their end.
    pub is_span: bool,
}

pub(super) enum Place {
    /// On tracks of the service that the field names.
    Service(usize),
    /// On tracks of the thread, or of the process if no thread is known.
    Thread {
        pid: Option<usize>,
        tid: Option<usize>,
        comm: Option<usize>,
    },
    Counters(Vec<Counter>),
    /// On tracks of the source, one for each text of the field.
    Source(Option<usize>),
}

pub(super) struct Counter {
    pub field: usize,
    pub name: String,
    pub unit: Unit,
}

impl Drawing {
    /// Whether its records tell the processes of threads.
    pub(super) fn has_pid(&self) -> bool {
        matches!(self.place, Place::Thread { pid: Some(_), .. })
    }

    pub(super) fn of(source: &Source) -> Drawing {
        let field = |name: &str, is_fit: fn(&FieldDef) -> bool| {
            let mut fields = source.fields.iter();
            fields.position(|field| field.name == name && is_fit(field))
        };
        let has = |name| field(name, |_| true).is_some();
        let service = field("service", is_text).filter(|_| has("trace_id") && has("span_id"));
        let span_name = field("name", is_text).filter(|_| service.is_some());
        let length = LENGTHS.iter().find_map(|name| field(name, is_integer));
        let (pid, tid) = (field("pid", is_integer), field("tid", is_integer));
        let labelled = || {
            let mut fields = source.fields.iter();
            fields.position(|field| !field.labels.is_empty())
        };
        let is_packet = has("src_addr") && has("dst_addr");
        let counters = counters(source);
        let place = match service {
            Some(service) => Place::Service(service),
            None if pid.is_some() || tid.is_some() => Place::Thread {
                pid,
                tid,
                comm: field("comm", is_text),
            },
            None if is_packet || counters.is_empty() => {
                Place::Source(field("interface", is_text).filter(|_| is_packet))
            }
            None => Place::Counters(counters),
        };
        let name = match service {
            Some(_) => span_name.or_else(|| field("body", is_text)),
            None => labelled(),
        };
        Drawing {
            place,
            name,
            length,
            is_span: span_name.is_some(),
        }
    }
}

/// The series of a source, or else the values of its indexes.
fn counters(source: &Source) -> Vec<Counter> {
    let fields = source.fields.iter().enumerate();
    let series = fields.filter(|(_, field)| !field.series.is_empty());
    let series: Vec<Counter> = series
        .map(|(at, field)| Counter {
            field: at,
            name: series_name(field),
            unit: Unit::Unspecified,
        })
        .collect();
    if !series.is_empty() {
        return series;
    }
    let mut counters: Vec<Counter> = Vec::new();
    for index in source.open_indexes() {
        if let Some(counter) = counter(source, index)
            && counters.iter().all(|one| one.field != counter.field)
        {
            counters.push(counter);
        }
    }
    counters
}

fn counter(source: &Source, index: &Index) -> Option<Counter> {
    let at = index.value_field()?;
    let field = source.fields.get(at)?;
    let is_number = is_integer(field) || matches!(field.ty, FieldType::F32 | FieldType::F64);
    let unit = match field.name.as_str() {
        name if name.ends_with("_ns") => Unit::TimeNs,
        name if name.ends_with("bytes") => Unit::SizeBytes,
        _ => Unit::Unspecified,
    };
    is_number.then(|| Counter {
        field: at,
        name: field.name.clone(),
        unit,
    })
}

/// As Prometheus writes it.
fn series_name(field: &FieldDef) -> String {
    const NAME: &str = "__name__";
    let labels = field.series.iter().filter(|(label, _)| *label != NAME);
    let labels: Vec<String> = labels
        .map(|(label, text)| format!("{label}={text:?}"))
        .collect();
    let metric = field.series.get(NAME).map_or("", String::as_str);
    match labels.is_empty() {
        true => metric.to_owned(),
        false => format!("{metric}{{{}}}", labels.join(",")),
    }
}

fn is_text(field: &FieldDef) -> bool {
    matches!(field.ty, FieldType::Utf8 | FieldType::Char(_))
}

fn is_integer(field: &FieldDef) -> bool {
    use FieldType::{I8, I16, I32, I64, U8, U16, U32, U64};
    let is_integer = matches!(field.ty, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64);
    is_integer && field.labels.is_empty()
}
