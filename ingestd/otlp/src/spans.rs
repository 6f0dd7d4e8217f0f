//! The spans of a request, one by one.

use opentelemetry_proto::tonic::trace::v1::{Span as Sent, span};
use serde::Serialize;

use crate::envelope::{Origin, Part, each_record};
use crate::json::{self, filled};
use crate::logs::{id, others};
use crate::promoted::{Promoted, Scalar};
use crate::wire::Malformed;

const SPAN: Part = Part {
    name: "trace.v1.Span",
    long: "it is longer than 256 KiB",
    wrong: "it is not a span of OTLP",
};

/// One span.
pub struct Span<'a> {
    pub origin: &'a Origin,
    /// The start in nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// `None` if the span has not ended.
    pub end_ns: Option<u64>,
    pub name: String,
    pub kind: i32,
    pub status: i32,
    pub status_message: Option<String>,
    pub trace_id: String,
    pub span_id: String,
    pub parent_span_id: Option<String>,
    pub trace_state: Option<String>,
    pub promoted: Vec<Option<Scalar>>,
    /// The other attributes, as a JSON object.
    pub attributes: Option<String>,
    /// Each is a JSON list of objects.
    pub events: Option<String>,
    pub links: Option<String>,
}

/// Calls `each` for each span of a request, or with the reason why it is refused. Returns whether it repaired texts that are not UTF-8.
///
/// # Errors
/// The bytes are not OTLP; `each` was called for the spans before.
pub fn spans(
    body: &[u8],
    promoted: &Promoted,
    mut each: impl FnMut(Result<Span<'_>, &'static str>),
) -> Result<bool, Malformed> {
    each_record(body, &SPAN, |record| {
        each(record.and_then(|(origin, sent)| span(origin, sent, promoted)));
    })
}

fn span<'a>(origin: &'a Origin, sent: Sent, promoted: &Promoted) -> Result<Span<'a>, &'static str> {
    const NO_TRACE: &str = "its trace_id is not of 16 bytes";
    const NO_SPAN: &str = "its span_id is not of 8 bytes";
    const NO_PARENT: &str = "its parent_span_id is not of 8 bytes";
    let status = sent.status.unwrap_or_default();
    Ok(Span {
        start_ns: sent.start_time_unix_nano,
        end_ns: Some(sent.end_time_unix_nano).filter(|end| *end > 0),
        kind: sent.kind,
        status: status.code,
        status_message: filled(status.message),
        trace_id: id(&sent.trace_id, 16).flatten().ok_or(NO_TRACE)?,
        span_id: id(&sent.span_id, 8).flatten().ok_or(NO_SPAN)?,
        parent_span_id: id(&sent.parent_span_id, 8).ok_or(NO_PARENT)?,
        trace_state: filled(sent.trace_state),
        promoted: promoted.values(&sent.attributes, origin),
        attributes: others(sent.attributes, promoted),
        events: list(sent.events.iter().map(event)),
        links: list(sent.links.iter().map(link)),
        name: sent.name,
        origin,
    })
}

/// An event or a link of a span, as JSON. Empty members are left out.
#[derive(Default, Serialize)]
struct Within<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<json::Object<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<&'a str>,
}

fn list<'a>(parts: impl Iterator<Item = Within<'a>>) -> Option<String> {
    let parts: Vec<Within<'a>> = parts.collect();
    (!parts.is_empty()).then(|| json::text(&parts))
}

fn event(event: &span::Event) -> Within<'_> {
    Within {
        attributes: json::object(&event.attributes),
        name: filled(event.name.as_str()),
        time_ns: Some(event.time_unix_nano).filter(|time| *time > 0),
        ..Within::default()
    }
}

fn link(link: &span::Link) -> Within<'_> {
    Within {
        attributes: json::object(&link.attributes),
        span_id: id(&link.span_id, 8).flatten(),
        trace_id: id(&link.trace_id, 16).flatten(),
        trace_state: filled(link.trace_state.as_str()),
        ..Within::default()
    }
}
