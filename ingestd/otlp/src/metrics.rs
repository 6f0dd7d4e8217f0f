//! The data points of a request, one by one, each as its Prometheus samples.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, HistogramDataPoint, NumberDataPoint, SummaryDataPoint,
    number_data_point,
};

use crate::envelope::{Origin, Part, RESOURCES, each_of_resource};
use crate::json;
use crate::naming::{self, Instrument};
use crate::wire::{Malformed, Value, fields, messages};

/// The fields of a metric: its name, its unit, and the data of each kind.
const NAME: u32 = 1;
const UNIT: u32 = 3;
const GAUGE: u32 = 5;
const SUM: u32 = 7;
const HISTOGRAM: u32 = 9;
const EXPONENTIAL_HISTOGRAM: u32 = 10;
const SUMMARY: u32 = 11;
/// The fields of each kind of data.
const POINTS: u32 = 1;
const TEMPORALITY: u32 = 2;
const IS_MONOTONIC: u32 = 3;

const DELTA: &str = "its values are deltas; set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative at the sender";

/// The longest labels of a data point, as for a series; and the most buckets of a point, because each bucket has all labels.
const LABEL_BYTES_MAX: usize = 4096;
const PARTS_MAX: usize = 1000;
const LONG: &str = "its labels take more than 4096 bytes";
const MANY: &str = "a data point has more than 1000 buckets or quantiles";

/// A metric whose value is always 1 and whose labels are the attributes of a resource, by OpenTelemetry's rules for Prometheus.
pub const TARGET_INFO: &str = "target_info";

/// One sample of a series.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    pub metric: String,
    /// The labels without the name, the job and the instance.
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// One data point: a number has one sample, and a histogram has several.
pub struct Point {
    pub time_ns: u64,
    pub samples: Vec<Sample>,
}

/// An item of a request of metrics.
pub enum Found<'a> {
    Point(&'a Origin, Point),
    /// The name of a data point's metric, and the reason why the point is refused.
    Refused(&'a str, &'static str),
    /// A resource's labels for [`TARGET_INFO`], and the time of its latest point. It comes after the points.
    Target(&'a Origin, BTreeMap<String, String>, u64),
}

/// Calls `each` for all items of a request. Returns whether it repaired texts that are not UTF-8.
///
/// # Errors
/// The bytes are not OTLP; `each` was called for the items before.
pub fn metrics(body: &[u8], mut each: impl FnMut(Found<'_>)) -> Result<bool, Malformed> {
    let is_repaired = Cell::new(false);
    for resource in messages(body, RESOURCES) {
        let mut latest_ns = None;
        let origin = each_of_resource(resource?, &is_repaired, |(origin, item)| {
            let metric = Metric::read(item, &is_repaired)?;
            if metric.kind == 0 {
                each(Found::Refused(
                    &metric.name,
                    "a metric has no data that Loom knows",
                ));
            }
            for point in messages(metric.data, POINTS) {
                let point = point?;
                let read = |origin| Ok((origin, metric.point(origin, point, &is_repaired)?));
                each(match origin.and_then(read) {
                    Ok((origin, point)) => {
                        latest_ns = latest_ns.max(Some(point.time_ns));
                        Found::Point(origin, point)
                    }
                    Err(why) => Found::Refused(&metric.name, why),
                });
            }
            Ok(())
        })?;
        if let (Some(origin), Some(time_ns)) = (&origin, latest_ns) {
            let mut labels = BTreeMap::new();
            put(&mut labels, origin.other_attributes());
            if !labels.is_empty() {
                each(Found::Target(origin, labels, time_ns));
            }
        }
    }
    Ok(is_repaired.get())
}

/// A data point of a kind.
const fn point(name: &'static str) -> Part {
    Part {
        name,
        long: "a data point is longer than 256 KiB",
        wrong: "a data point is not one of OTLP",
    }
}

const NUMBER_POINT: Part = point("metrics.v1.NumberDataPoint");
const HISTOGRAM_POINT: Part = point("metrics.v1.HistogramDataPoint");
const SUMMARY_POINT: Part = point("metrics.v1.SummaryDataPoint");

/// The metric and the origin of a point.
struct Metric<'a> {
    name: Cow<'a, str>,
    /// The name in Prometheus.
    shown: String,
    kind: u32,
    data: &'a [u8],
    temporality: u64,
}

impl<'a> Metric<'a> {
    fn read(message: &'a [u8], is_repaired: &Cell<bool>) -> Result<Metric<'a>, Malformed> {
        let (mut name, mut unit) = (&b""[..], &b""[..]);
        let (mut kind, mut data) = (0, &b""[..]);
        for field in fields(message) {
            match field? {
                (NAME, Value::Bytes(text)) => name = text,
                (UNIT, Value::Bytes(text)) => unit = text,
                (
                    found @ (GAUGE | SUM | HISTOGRAM | EXPONENTIAL_HISTOGRAM | SUMMARY),
                    Value::Bytes(bytes),
                ) => {
                    (kind, data) = (found, bytes);
                }
                _ => {}
            }
        }
        let (mut temporality, mut is_monotonic) = (0, false);
        for field in fields(data) {
            match field? {
                (TEMPORALITY, Value::Number(number)) => temporality = number,
                (IS_MONOTONIC, Value::Number(number)) => is_monotonic = number != 0,
                _ => {}
            }
        }
        let instrument = match kind {
            GAUGE => Instrument::Gauge,
            SUM if is_monotonic => Instrument::Counter,
            _ => Instrument::Other,
        };
        let [name, unit] = [name, unit].map(String::from_utf8_lossy);
        if matches!((&name, &unit), (Cow::Owned(_), _) | (_, Cow::Owned(_))) {
            is_repaired.set(true);
        }
        Ok(Metric {
            shown: naming::metric(&name, &unit, instrument),
            name,
            kind,
            data,
            temporality,
        })
    }

    fn point(
        &self,
        origin: &Origin,
        message: &[u8],
        is_repaired: &Cell<bool>,
    ) -> Result<Point, &'static str> {
        if self.shown.is_empty() {
            return Err("its name has no letter or digit");
        }
        let is_sum = matches!(self.kind, SUM | HISTOGRAM);
        if is_sum && self.temporality != AggregationTemporality::Cumulative as u64 {
            return Err(DELTA);
        }
        let read = match self.kind {
            GAUGE | SUM => number(NUMBER_POINT.decoded(message, is_repaired)?)?,
            HISTOGRAM => histogram(HISTOGRAM_POINT.decoded(message, is_repaired)?)?,
            SUMMARY => summary(SUMMARY_POINT.decoded(message, is_repaired)?)?,
            _ => {
                return Err(
                    "it is an exponential histogram; give it explicit bounds at the sender",
                );
            }
        };
        let labels = labels(origin, &read.attributes)?;
        let sample = |(suffix, own, value): ReadSample| {
            let own = own.map(|(name, number)| (name.to_owned(), number_text(number)));
            Sample {
                metric: format!("{}{suffix}", self.shown),
                labels: labels.clone().into_iter().chain(own).collect(),
                value,
            }
        };
        let samples = read.samples.into_iter().map(sample);
        Ok(Point {
            time_ns: read.time_ns,
            samples: samples.filter(|_| !has_none(read.flags)).collect(),
        })
    }
}

/// A data point of a request.
struct Read {
    time_ns: u64,
    flags: u32,
    attributes: Vec<KeyValue>,
    samples: Vec<ReadSample>,
}

/// The suffix of a sample's metric, its additional label, and its value.
type ReadSample = (&'static str, Option<(&'static str, f64)>, f64);

fn number(point: NumberDataPoint) -> Result<Read, &'static str> {
    let value = match point.value {
        Some(number_data_point::Value::AsDouble(value)) => Some(value),
        Some(number_data_point::Value::AsInt(value)) => Some(value as f64),
        None if has_none(point.flags) => None,
        None => return Err("a data point has no value that can be read"),
    };
    Ok(Read {
        time_ns: point.time_unix_nano,
        flags: point.flags,
        attributes: point.attributes,
        samples: value.map(|value| ("", None, value)).into_iter().collect(),
    })
}

fn histogram(point: HistogramDataPoint) -> Result<Read, &'static str> {
    let (bounds, counts) = (&point.explicit_bounds, &point.bucket_counts);
    if !counts.is_empty() && counts.len() != bounds.len() + 1 {
        return Err("a histogram has other than one bucket more than bounds");
    }
    if !bounds.is_sorted_by(|a, b| a < b) || !bounds.iter().all(|bound| bound.is_finite()) {
        return Err("the bounds of a histogram are not finite numbers that ascend");
    }
    if bounds.len() > PARTS_MAX {
        return Err(MANY);
    }
    let sums = counts.iter().scan(0u64, |sum, count| {
        *sum = sum.saturating_add(*count);
        Some(*sum as f64)
    });
    let buckets = bounds.iter().zip(sums);
    let buckets = buckets.map(|(bound, sum)| ("_bucket", Some(("le", *bound)), sum));
    let count = point.count as f64;
    let all = ("_bucket", Some(("le", f64::INFINITY)), count);
    let sum = point.sum.map(|sum| ("_sum", None, sum));
    Ok(Read {
        time_ns: point.time_unix_nano,
        flags: point.flags,
        samples: buckets
            .chain([all, ("_count", None, count)])
            .chain(sum)
            .collect(),
        attributes: point.attributes,
    })
}

fn summary(point: SummaryDataPoint) -> Result<Read, &'static str> {
    if point.quantile_values.len() > PARTS_MAX {
        return Err(MANY);
    }
    let quantiles = point.quantile_values.iter();
    let quantiles = quantiles.map(|at| ("", Some(("quantile", at.quantile)), at.value));
    let whole = [
        ("_count", None, point.count as f64),
        ("_sum", None, point.sum),
    ];
    Ok(Read {
        time_ns: point.time_unix_nano,
        flags: point.flags,
        samples: quantiles.chain(whole).collect(),
        attributes: point.attributes,
    })
}

/// The sender reports that there is no value now.
fn has_none(flags: u32) -> bool {
    flags & DataPointFlags::NoRecordedValueMask as u32 != 0
}

/// A number in Prometheus' form for bounds and quantiles: `1`, not `1.0`.
fn number_text(number: f64) -> String {
    match number {
        number if number == f64::INFINITY => "+Inf".to_owned(),
        number => number.to_string(),
    }
}

fn labels(
    origin: &Origin,
    attributes: &[KeyValue],
) -> Result<BTreeMap<String, String>, &'static str> {
    let mut labels = BTreeMap::new();
    let scope = [
        ("otel_scope_name", &origin.scope_name),
        ("otel_scope_version", &origin.scope_version),
    ];
    for (name, text) in scope {
        if !text.is_empty() {
            labels.insert(name.to_owned(), text.clone());
        }
    }
    put(&mut labels, attributes);
    let bytes = labels.iter().map(|(name, text)| name.len() + text.len());
    match bytes.sum::<usize>() > LABEL_BYTES_MAX {
        true => Err(LONG),
        false => Ok(labels),
    }
}

/// Adds the attributes that have a name and a text to labels.
fn put<'a>(
    labels: &mut BTreeMap<String, String>,
    attributes: impl IntoIterator<Item = &'a KeyValue>,
) {
    for attribute in attributes {
        let text = attribute.value.as_ref().and_then(json::plain);
        let name = naming::label(&attribute.key);
        let Some(text) = text.filter(|text| !text.is_empty() && !name.is_empty()) else {
            continue;
        };
        // Two attributes may become labels with the same name.
        labels
            .entry(name)
            .and_modify(|known| {
                known.push(';');
                known.push_str(&text);
            })
            .or_insert(text);
    }
}
