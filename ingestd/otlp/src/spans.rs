//! Spans of a request, one by one.

use std::cell::Cell;

use opentelemetry_proto::tonic::trace::v1::{Span as Sent, span};

use crate::envelope::{Origin, each_item, record};
use crate::json::{self, Entry};
use crate::logs::{filled, id, others};
use crate::promoted::{Promoted, Scalar};
use crate::utf8;
use crate::wire::Malformed;

/// One span.
pub struct Span<'a> {
    pub origin: &'a Origin,
    /// In nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// None of a span that has not ended.
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
    /// The others, as a JSON object.
    pub attributes: Option<String>,
    /// A JSON list of objects each.
    pub events: Option<String>,
    pub links: Option<String>,
}

/// Calls `each` for each span of a request, or with why it is refused. Returns whether texts were repaired that are not UTF-8.
///
/// # Errors
/// The bytes are none of the protocol; `each` was called for those before.
pub fn spans(
    body: &[u8],
    promoted: &Promoted,
    mut each: impl FnMut(Result<Span<'_>, &'static str>),
) -> Result<bool, Malformed> {
    let is_repaired = Cell::new(false);
    each_item(body, &is_repaired, |item| {
        each(match record(item) {
            Ok((origin, bytes)) => match utf8::decoded(bytes, &utf8::SPAN, &is_repaired) {
                Ok(sent) => span(origin, sent, promoted),
                Err(_) => Err("it is not a span of OTLP"),
            },
            Err(why) => Err(why),
        });
        Ok(())
    })?;
    Ok(is_repaired.get())
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
        attributes: others(&sent.attributes, promoted),
        events: json::list(&sent.events, event),
        links: json::list(&sent.links, link),
        name: sent.name,
        origin,
    })
}

fn event(event: &span::Event, entry: &mut dyn FnMut(&'static str, Entry<'_>)) {
    entry("time_ns", Entry::Number(event.time_unix_nano));
    entry("name", Entry::Text(&event.name));
    entry("attributes", Entry::Attributes(&event.attributes));
}

fn link(link: &span::Link, entry: &mut dyn FnMut(&'static str, Entry<'_>)) {
    let of = |bytes: &[u8], length| id(bytes, length).flatten().unwrap_or_default();
    entry("trace_id", Entry::Text(&of(&link.trace_id, 16)));
    entry("span_id", Entry::Text(&of(&link.span_id, 8)));
    entry("trace_state", Entry::Text(&link.trace_state));
    entry("attributes", Entry::Attributes(&link.attributes));
}
