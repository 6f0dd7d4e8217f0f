//! The log records of a request, one by one.

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::envelope::{Origin, Part, each_record};
use crate::json::{self, filled};
use crate::promoted::{Promoted, Scalar};
use crate::wire::Malformed;

const LOG: Part = Part {
    name: "logs.v1.LogRecord",
    long: "it is longer than 256 KiB",
    wrong: "it is not a log record of OTLP",
};

/// One log record.
pub struct Log<'a> {
    pub origin: &'a Origin,
    /// The time of the event, or else of its observation, in nanoseconds since the Unix epoch; `None` if the sender gives neither.
    pub time_ns: Option<u64>,
    pub severity: i32,
    pub severity_text: Option<String>,
    pub event: Option<String>,
    /// A text stays as it is; any other value becomes JSON.
    pub body: Option<String>,
    pub trace_id: Option<String>,
    pub span_id: Option<String>,
    pub promoted: Vec<Option<Scalar>>,
    /// The other attributes, as a JSON object.
    pub attributes: Option<String>,
}

/// Calls `each` for each log record of a request, or with the reason why it is refused. Returns whether it repaired texts that are not UTF-8.
///
/// # Errors
/// The bytes are not OTLP; `each` was called for the records before.
pub fn logs(
    body: &[u8],
    promoted: &Promoted,
    mut each: impl FnMut(Result<Log<'_>, &'static str>),
) -> Result<bool, Malformed> {
    each_record(body, &LOG, |record| {
        each(record.and_then(|(origin, record)| log(origin, record, promoted)));
    })
}

fn log<'a>(
    origin: &'a Origin,
    record: LogRecord,
    promoted: &Promoted,
) -> Result<Log<'a>, &'static str> {
    let times = [record.time_unix_nano, record.observed_time_unix_nano];
    Ok(Log {
        time_ns: times.into_iter().find(|time| *time > 0),
        severity: record.severity_number,
        severity_text: filled(record.severity_text),
        event: filled(record.event_name),
        body: record.body.as_ref().and_then(json::plain),
        trace_id: id(&record.trace_id, 16).ok_or("its trace_id is not of 16 bytes")?,
        span_id: id(&record.span_id, 8).ok_or("its span_id is not of 8 bytes")?,
        promoted: promoted.values(&record.attributes, origin),
        attributes: others(record.attributes, promoted),
        origin,
    })
}

/// The attributes without a field of their own.
pub(crate) fn others(mut attributes: Vec<KeyValue>, promoted: &Promoted) -> Option<String> {
    attributes.retain(|attribute| !promoted.takes(attribute));
    json::object(&attributes).as_ref().map(json::text)
}

/// An id in hexadecimal digits. `Some(None)`: it is empty or zero. `None`: its length is wrong.
pub(crate) fn id(bytes: &[u8], length: usize) -> Option<Option<String>> {
    if bytes.iter().all(|byte| *byte == 0) && bytes.len() <= length {
        return Some(None);
    }
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    (bytes.len() == length).then(|| Some(digits(bytes)))
}
