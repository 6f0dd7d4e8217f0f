//! Log records and spans as payloads of their source.

use loom_engine::schema::{FieldDef, FieldType, FieldValue, PayloadEncoder, Source, SourceDef};
use loom_engine::{Error, SourceId, Timestamp, proven};
use loom_otlp::{Kind, Log, Malformed, Promoted, Scalar, Span};

use super::batch::Batch;
use crate::config::{OtlpDef, SEVERITIES};
use crate::wall_clock;

const DAY_NS: i64 = 86_400_000_000_000;
/// The bounds of a record's time around the machine's.
const AHEAD_NS_MAX: i64 = DAY_NS;
const BEHIND_NS_MAX: i64 = 31 * DAY_NS;
const WRONG_TIME: &str =
    "its time is more than a day ahead or 31 days behind; set the sender's clock";

/// Encodes the records of one of the two sources.
pub(super) struct RecordSource {
    pub(super) id: SourceId,
    encoder: PayloadEncoder,
    /// For each field of the catalog, the place of its value among those of a record; without one it stays NULL.
    places: Vec<Option<usize>>,
    promoted: Promoted,
    payload: Vec<u8>,
}

impl RecordSource {
    /// `known` is the source in the catalog.
    pub(super) fn new(source: &SourceDef, known: &Source, def: &OtlpDef) -> RecordSource {
        let (id, known) = (known.id, &known.fields);
        let place = |known: &FieldDef| {
            let mut fields = source.fields.iter();
            fields.position(|field| field.name == known.name)
        };
        let encoder = PayloadEncoder::new(source.time, known)
            .expect("a configuration's sources have a layout");
        let kind = |ty| match ty {
            FieldType::I64 => Kind::Int,
            FieldType::F64 => Kind::Double,
            FieldType::Bool => Kind::Bool,
            _ => Kind::Text,
        };
        let promoted = def.promote.iter();
        let promoted = promoted.map(|promote| (promote.name.clone(), kind(promote.ty)));
        RecordSource {
            id,
            encoder,
            places: known.iter().map(place).collect(),
            promoted: Promoted(promoted.collect()),
            payload: Vec::new(),
        }
    }

    pub(super) fn logs(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        let now = wall_clock();
        let promoted = self.promoted.clone();
        let is_repaired = loom_otlp::logs(body, &promoted, |log| {
            let encoded = log.map_err(Error::schema).and_then(|log| {
                let time = match log.time_ns {
                    Some(time_ns) => within(time_ns, now)?,
                    None => now,
                };
                self.encode(time, &log_values(&log), &log.promoted)
            });
            self.hand_over(encoded, batch);
        })?;
        batch.refused.is_repaired = is_repaired;
        Ok(())
    }

    pub(super) fn spans(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), Malformed> {
        let now = wall_clock();
        let promoted = self.promoted.clone();
        let is_repaired = loom_otlp::spans(body, &promoted, |span| {
            let encoded = span.map_err(Error::schema).and_then(|span| {
                let start = within(span.start_ns, now)?;
                let end = span.end_ns.map(|end_ns| within(end_ns, now)).transpose()?;
                let duration_ns = end.map(|end| end.0 - start.0);
                self.encode(start, &span_values(&span, duration_ns), &span.promoted)
            });
            self.hand_over(encoded, batch);
        })?;
        batch.refused.is_repaired = is_repaired;
        Ok(())
    }

    fn encode(
        &mut self,
        time: Timestamp,
        values: &[FieldValue<'_>],
        promoted: &[Option<Scalar>],
    ) -> Result<(), Error> {
        let promoted = promoted.iter().map(|value| match value {
            None => FieldValue::Null,
            Some(Scalar::Text(text)) => FieldValue::Bytes(text.as_bytes()),
            Some(Scalar::Int(value)) => FieldValue::I64(*value),
            Some(Scalar::Double(value)) => FieldValue::F64(*value),
            Some(Scalar::Bool(value)) => FieldValue::Bool(*value),
        });
        let all: Vec<FieldValue<'_>> = values.iter().copied().chain(promoted).collect();
        let value = |place: &Option<usize>| match place {
            Some(place) => *proven::at(&all, *place),
            None => FieldValue::Null,
        };
        let all: Vec<FieldValue<'_>> = self.places.iter().map(value).collect();
        self.payload.clear();
        self.encoder.encode(Some(time), &all, &mut self.payload)
    }

    fn hand_over(&self, encoded: Result<(), Error>, batch: &mut Batch) {
        match encoded {
            Ok(()) => batch.add(&self.payload),
            Err(error) => batch.refuse(&error),
        }
    }
}

fn within(time_ns: u64, now: Timestamp) -> Result<Timestamp, Error> {
    if time_ns == 0 {
        return Err(Error::schema("it has no time"));
    }
    let time_ns = i64::try_from(time_ns).map_err(|_| Error::schema(WRONG_TIME))?;
    let ahead_ns = time_ns.saturating_sub(now.0);
    match (-BEHIND_NS_MAX..=AHEAD_NS_MAX).contains(&ahead_ns) {
        true => Ok(Timestamp(time_ns)),
        false => Err(Error::schema(WRONG_TIME)),
    }
}

fn text(text: &Option<String>) -> FieldValue<'_> {
    text.as_deref()
        .map_or(FieldValue::Null, |text| FieldValue::Bytes(text.as_bytes()))
}

/// In the order of the source's fields.
fn log_values<'a>(log: &'a Log<'a>) -> [FieldValue<'a>; 11] {
    [
        match log.severity {
            0 => FieldValue::Null,
            severity => FieldValue::I64(severity.into()),
        },
        text(&log.severity_text),
        text(&log.body),
        text(&log.origin.service),
        text(&log.event),
        text(&log.trace_id),
        text(&log.span_id),
        text(&log.attributes),
        text(&log.origin.resource),
        text(&log.origin.scope),
        // The first field alone has any other number.
        match u64::try_from(log.severity) {
            Ok(number) if (1..=SEVERITIES.len() as u64).contains(&number) => {
                FieldValue::U64(number)
            }
            _ => FieldValue::Null,
        },
    ]
}

/// In the order of the source's fields.
fn span_values<'a>(span: &'a Span<'a>, duration_ns: Option<i64>) -> [FieldValue<'a>; 15] {
    [
        duration_ns.map_or(FieldValue::Null, FieldValue::I64),
        FieldValue::Bytes(span.name.as_bytes()),
        text(&span.origin.service),
        FieldValue::I64(span.kind.into()),
        FieldValue::I64(span.status.into()),
        text(&span.status_message),
        FieldValue::Bytes(span.trace_id.as_bytes()),
        FieldValue::Bytes(span.span_id.as_bytes()),
        text(&span.parent_span_id),
        text(&span.trace_state),
        text(&span.attributes),
        text(&span.events),
        text(&span.links),
        text(&span.origin.resource),
        text(&span.origin.scope),
    ]
}
