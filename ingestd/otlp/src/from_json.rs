//! Requests in JSON, which become the same in protobuf and go the same way from there on. One record is decoded at a time, by the crate that knows
//! what OTLP has of its own in JSON: ids in hexadecimal, numbers of 64 bits as texts.

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, Gauge, Histogram, Metric, Sum, Summary,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::envelope::{ITEMS, RESOURCE, RESOURCES, SCOPE, SCOPES};
use crate::handler::Signal;
use crate::wire::Malformed;

/// The longest JSON of a resource, a scope, a record or a metric with its points: decoded it takes some 20 times as much.
const PART_BYTES_MAX: usize = 4 << 20;

#[derive(Deserialize)]
struct Export<'a> {
    #[serde(alias = "resourceLogs", alias = "resourceSpans")]
    #[serde(rename = "resourceMetrics", borrow, default)]
    resources: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct OfResource<'a> {
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(alias = "scopeLogs", alias = "scopeSpans")]
    #[serde(rename = "scopeMetrics", borrow, default)]
    scopes: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct OfScope<'a> {
    #[serde(borrow)]
    scope: Option<&'a RawValue>,
    #[serde(alias = "logRecords", alias = "spans")]
    #[serde(rename = "metrics", borrow, default)]
    items: Vec<&'a RawValue>,
}

/// The same request in protobuf.
pub(crate) fn protobuf(signal: Signal, body: &[u8]) -> Result<Vec<u8>, Malformed> {
    let item = match signal {
        Signal::Logs => part::<LogRecord>,
        Signal::Spans => part::<Span>,
        Signal::Metrics => metric,
    };
    let export: Export<'_> = serde_json::from_slice(body).map_err(Malformed::not_json)?;
    let mut request = Vec::new();
    for resource in export.resources {
        let sent: OfResource<'_> = parsed(resource)?;
        let mut of_resource = Vec::new();
        if let Some(resource) = sent.resource {
            put(RESOURCE, &part::<Resource>(resource)?, &mut of_resource);
        }
        for scope in sent.scopes {
            let sent: OfScope<'_> = parsed(scope)?;
            let mut of_scope = Vec::new();
            if let Some(scope) = sent.scope {
                put(SCOPE, &part::<InstrumentationScope>(scope)?, &mut of_scope);
            }
            for sent in sent.items {
                put(ITEMS, &item(sent)?, &mut of_scope);
            }
            put(SCOPES, &of_scope, &mut of_resource);
        }
        put(RESOURCES, &of_resource, &mut request);
    }
    Ok(request)
}

fn parsed<'a, T: Deserialize<'a>>(json: &'a RawValue) -> Result<T, Malformed> {
    serde_json::from_str(json.get()).map_err(Malformed::not_json)
}

fn part<T: Message + DeserializeOwned>(json: &RawValue) -> Result<Vec<u8>, Malformed> {
    Ok(decoded::<T>(json)?.encode_to_vec())
}

fn decoded<T: DeserializeOwned>(json: &RawValue) -> Result<T, Malformed> {
    if json.get().len() > PART_BYTES_MAX {
        return Err(Malformed::long_json(PART_BYTES_MAX));
    }
    parsed(json)
}

/// The crate reads data with a mistake as no data, so what is without data is looked at again.
fn metric(json: &RawValue) -> Result<Vec<u8>, Malformed> {
    #[derive(Deserialize)]
    struct Data {
        #[serde(rename = "gauge")]
        _gauge: Option<Gauge>,
        #[serde(rename = "sum")]
        _sum: Option<Sum>,
        #[serde(rename = "histogram")]
        _histogram: Option<Histogram>,
        #[serde(rename = "exponentialHistogram")]
        _exponential: Option<ExponentialHistogram>,
        #[serde(rename = "summary")]
        _summary: Option<Summary>,
    }
    let metric: Metric = decoded(json)?;
    if metric.data.is_none() {
        parsed::<Data>(json)?;
    }
    Ok(metric.encode_to_vec())
}

fn put(field: u32, message: &[u8], out: &mut Vec<u8>) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(message.len() as u64, out);
    out.extend_from_slice(message);
}
