//! Requests in JSON, which become the same in protobuf and go the same way from there on. One record is decoded at a time, by the crate that knows
//! what OTLP has of its own in JSON: ids in hexadecimal, numbers of 64 bits as texts.

use std::borrow::Cow;

use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, Gauge, Histogram, Metric, Sum, Summary,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::envelope::{ITEMS, RESOURCE, RESOURCES, SCOPE, SCOPES};
use crate::handler::Signal;
use crate::json_tree::Tree;
use crate::utf8::put;
use crate::wire::Malformed;

/// The longest JSON of a resource, a scope, a record or a metric with its points: decoded it takes some 20 times as much.
const PART_BYTES_MAX: usize = 4 << 20;

/// The members of a metric, of which one holds its data points, and the member of those.
const KINDS: [&str; 5] = [
    "gauge",
    "sum",
    "histogram",
    "exponentialHistogram",
    "summary",
];
const POINTS: &str = "dataPoints";

#[derive(Deserialize)]
struct Export<'a> {
    #[serde(alias = "resourceLogs", alias = "resourceSpans")]
    #[serde(rename = "resourceMetrics", borrow, default)]
    resources: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct OfResource<'a> {
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(alias = "scopeLogs", alias = "scopeSpans")]
    #[serde(rename = "scopeMetrics", borrow, default)]
    scopes: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct OfScope<'a> {
    #[serde(borrow)]
    scope: Option<&'a RawValue>,
    #[serde(alias = "logRecords", alias = "spans")]
    #[serde(rename = "metrics", borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

/// A request in JSON, as far as it could be read.
pub(crate) struct Read {
    /// The same in protobuf.
    pub(crate) protobuf: Vec<u8>,
    /// How many records, spans or data points could not be read, and why the first.
    pub(crate) refused: Option<(u64, String)>,
    /// Texts were not UTF-8.
    pub(crate) is_repaired: bool,
}

/// The same request in protobuf. A record that cannot be read is left out.
pub(crate) fn protobuf(signal: Signal, body: &[u8]) -> Result<Read, Malformed> {
    let item = match signal {
        Signal::Logs => part::<LogRecord>,
        Signal::Spans => part::<Span>,
        Signal::Metrics => metric,
    };
    let body = String::from_utf8_lossy(body);
    let export: Export<'_> = serde_json::from_str(&body).map_err(Malformed::not_json)?;
    let mut request = Vec::new();
    let mut refused: Option<(u64, String)> = None;
    let mut refuse = |why: Malformed| refused.get_or_insert_with(|| (0, why.to_string())).0 += 1;
    for resource in export.resources.into_iter().flatten() {
        let sent: OfResource<'_> = parsed(resource)?;
        let mut of_resource = Vec::new();
        if let Some(resource) = sent.resource {
            put(RESOURCE, &part::<Resource>(resource)?, &mut of_resource);
        }
        for scope in sent.scopes.into_iter().flatten() {
            let sent: OfScope<'_> = parsed(scope)?;
            let mut of_scope = Vec::new();
            if let Some(scope) = sent.scope {
                put(SCOPE, &part::<InstrumentationScope>(scope)?, &mut of_scope);
            }
            for sent in sent.items.into_iter().flatten() {
                match (item(sent), signal) {
                    (Ok(item), _) => put(ITEMS, &item, &mut of_scope),
                    (Err(why), Signal::Metrics) => {
                        for metric in sound_points(sent, why, &mut refuse) {
                            put(ITEMS, &metric, &mut of_scope);
                        }
                    }
                    (Err(why), _) => refuse(why),
                }
            }
            put(SCOPES, &of_scope, &mut of_resource);
        }
        put(RESOURCES, &of_resource, &mut request);
    }
    Ok(Read {
        protobuf: request,
        refused,
        is_repaired: matches!(body, Cow::Owned(_)),
    })
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
    let json: Tree = parsed(json)?;
    T::deserialize(json).map_err(Malformed::not_json)
}

/// Of a metric that cannot be read as a whole, one metric for each data point that can be. Calls `refuse` for each other one, or once if there is none.
fn sound_points(
    json: &RawValue,
    why: Malformed,
    refuse: &mut impl FnMut(Malformed),
) -> Vec<Vec<u8>> {
    let is_long = json.get().len() > PART_BYTES_MAX;
    let sent: Option<Value> = parsed(json).ok().filter(|_| !is_long);
    let Some((mut sent, kind, points)) = sent.and_then(without_points) else {
        refuse(why);
        return Vec::new();
    };
    let mut sound = Vec::new();
    for point in points {
        if let Some(place) = sent.get_mut(kind).and_then(|data| data.get_mut(POINTS)) {
            *place = Value::Array(vec![point]);
        }
        let one = to_raw_value(&sent).map_err(Malformed::not_json);
        match one.and_then(|one| metric(&one)) {
            Ok(metric) => sound.push(metric),
            Err(why) => refuse(why),
        }
    }
    sound
}

/// A metric without its data points, which member they were in, and those; `None` if it has none.
fn without_points(mut metric: Value) -> Option<(Value, &'static str, Vec<Value>)> {
    let kind = KINDS.into_iter().find(|kind| metric.get(kind).is_some())?;
    let points = metric.get_mut(kind)?.get_mut(POINTS)?.as_array_mut()?;
    let points = std::mem::take(points);
    (!points.is_empty()).then_some((metric, kind, points))
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
        decoded::<Data>(json)?;
    }
    Ok(metric.encode_to_vec())
}
