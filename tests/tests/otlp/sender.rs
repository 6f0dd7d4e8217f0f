//! A sender for one test: it sends requests over HTTP/1.1, byte for byte as the test says, and has the parts that requests are made of.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::{Daemon, ingestd, wait_until};
use loom_tests::duckdb::{Session, Version};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tempfile::TempDir;

/// A daemon with its own port for OTLP.
pub struct Receiving {
    pub daemon: Daemon,
    pub address: String,
    /// The temporary folder of the directory, if this test made it.
    place: Option<TempDir>,
}

impl Receiving {
    /// Starts a daemon on a new directory. `more` is added to `[otlp]`, and may begin other tables.
    pub fn new(more: &str) -> Result<Receiving> {
        let place = tempfile::tempdir()?;
        let mut receiving = Receiving::start(&place.path().join("o.loom"), more)?;
        receiving.place = Some(place);
        Ok(receiving)
    }

    pub fn dir(&self) -> &Path {
        self.daemon.dir()
    }

    /// The folder that holds the directory.
    pub fn place(&self) -> &Path {
        self.dir().parent().unwrap_or(self.dir())
    }

    pub fn stop(self) -> Result<()> {
        self.daemon.stop()
    }

    /// Stops the daemon; fails unless the directory is sound.
    pub fn stop_sound(self) -> Result<()> {
        let dir = self.dir().to_owned();
        self.daemon.stop()?;
        ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
    }

    /// Stops the daemon and starts the next one on the same directory.
    pub fn stopped_and_started(self, more: &str) -> Result<Receiving> {
        let dir = self.dir().to_owned();
        self.daemon.stop()?;
        let next = Receiving::start(&dir, more)?;
        Ok(Receiving {
            place: self.place,
            ..next
        })
    }

    pub fn killed_and_started(self, more: &str) -> Result<Receiving> {
        let dir = self.dir().to_owned();
        self.daemon.kill()?;
        let next = Receiving::start(&dir, more)?;
        Ok(Receiving {
            place: self.place,
            ..next
        })
    }

    /// The answer of both versions of DuckDB. `DIR` in a statement is the directory.
    pub fn ask(&self, sql: &str) -> Result<String> {
        ask(self.dir(), sql)
    }

    /// Fails unless this is the answer.
    pub fn asks(&self, sql: &str, wanted: impl AsRef<str>) -> Result<()> {
        let (found, wanted) = (self.ask(sql)?, wanted.as_ref());
        ensure!(found == wanted, "{sql}: {found}, not {wanted}");
        Ok(())
    }

    /// Waits for this answer.
    pub fn asks_until(&self, sql: &str, wanted: impl AsRef<str>) -> Result<()> {
        let is_so = wait_until(|| Ok(self.ask(sql)? == wanted.as_ref()))?;
        ensure!(is_so, "{sql}: {}", self.ask(sql)?);
        Ok(())
    }

    /// Fails unless a request is taken whole.
    pub fn takes(&self, path: &str, body: &[u8]) -> Result<()> {
        let (refused, why) = self.post(path, body)?.refused()?;
        ensure!(refused == 0, "{refused} {why}");
        Ok(())
    }

    /// As `takes`, but the answer must have no message either.
    pub fn takes_all(&self, path: &str, body: &[u8]) -> Result<()> {
        let refused = self.post(path, body)?.refused()?;
        ensure!(refused == (0, String::new()), "{refused:?}");
        Ok(())
    }

    /// Fails unless `count` parts of a request are refused, with this reason among others.
    pub fn refuses(&self, path: &str, body: &[u8], count: i64, reason: &str) -> Result<()> {
        let (refused, why) = self.post(path, body)?.refused()?;
        ensure!(refused == count && why.contains(reason), "{refused} {why}");
        Ok(())
    }

    /// `more` is added to `[otlp]`, and may begin other tables.
    pub fn start(dir: &Path, more: &str) -> Result<Receiving> {
        let file = dir.with_extension("log");
        let before = std::fs::read_to_string(&file).map_or(0, |log| log.len());
        let config = format!("[otlp]\nlisten = ['127.0.0.1:0']\n{more}\n");
        let daemon = Daemon::start(dir, &config)?;
        let mut address = String::new();
        let is_said = wait_until(|| {
            let log = std::fs::read_to_string(&file)?;
            let said = log.get(before..).unwrap_or_default();
            let line = said
                .lines()
                .find_map(|line| line.split_once("receiving OTLP on "));
            address = line.map_or(String::new(), |(_, address)| address.to_owned());
            Ok(!address.is_empty())
        })?;
        ensure!(is_said, "the daemon does not say where it receives");
        Ok(Receiving {
            daemon,
            address,
            place: None,
        })
    }

    /// Sends a body of protobuf, and returns the answer.
    pub fn post(&self, path: &str, body: &[u8]) -> Result<Reply> {
        let head = "content-type: application/x-protobuf\r\n";
        self.send("POST", path, head, body)
    }

    pub fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Result<Reply> {
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
            self.address,
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.raw(&request)
    }

    /// Sends these bytes, and reads until the daemon closes the connection.
    pub fn raw(&self, request: &[u8]) -> Result<Reply> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        // A daemon that refuses a request closes before everything is sent.
        let _ = stream.write_all(request);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        Reply::of(&reply)
    }
}

/// An answer of the daemon.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

/// An ExportXServiceResponse, or the Status of an error.
#[derive(Clone, PartialEq, prost::Message)]
struct Exported {
    #[prost(message, optional, tag = "1")]
    partial: Option<Partial>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Partial {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    why: String,
}

impl Reply {
    fn of(bytes: &[u8]) -> Result<Reply> {
        let end = bytes.windows(4).position(|end| end == b"\r\n\r\n");
        let (head, rest) = bytes.split_at(end.context("the daemon did not answer")?);
        let head = String::from_utf8_lossy(head).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?;
        Ok(Reply {
            status: status.parse()?,
            body: rest.get(4..).unwrap_or_default().to_vec(),
            head,
        })
    }

    /// The number of refused parts of a request that was otherwise stored, and the reason.
    pub fn refused(&self) -> Result<(i64, String)> {
        ensure!(self.status == 200, "{self:?} {}", self.why());
        let partial = Exported::decode(&self.body[..])?.partial;
        Ok(partial.map_or((0, String::new()), |partial| {
            (partial.rejected, partial.why)
        }))
    }

    /// The reason for which a request is answered with an error.
    pub fn why(&self) -> String {
        Partial::decode(&self.body[..]).map_or(String::new(), |status| status.why)
    }
}

pub fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

pub fn int(key: &str, value: i64) -> KeyValue {
    attribute(key, any_value::Value::IntValue(value))
}

pub fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

/// A service `shop` on a host `h1`.
pub fn shop() -> Resource {
    Resource {
        attributes: vec![
            text("service.name", "shop"),
            text("service.instance.id", "i1"),
            text("host.name", "h1"),
        ],
        ..Resource::default()
    }
}

pub fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "lib".to_owned(),
        version: "1.2".to_owned(),
        ..InstrumentationScope::default()
    }
}

pub fn logs(records: Vec<LogRecord>) -> Vec<u8> {
    let scoped = ScopeLogs {
        scope: Some(scope()),
        log_records: records,
        ..ScopeLogs::default()
    };
    let resource = ResourceLogs {
        resource: Some(shop()),
        scope_logs: vec![scoped],
        ..ResourceLogs::default()
    };
    let resource_logs = vec![resource];
    ExportLogsServiceRequest { resource_logs }.encode_to_vec()
}

pub fn spans(spans: Vec<Span>) -> Vec<u8> {
    let scoped = ScopeSpans {
        scope: Some(scope()),
        spans,
        ..ScopeSpans::default()
    };
    let resource = ResourceSpans {
        resource: Some(shop()),
        scope_spans: vec![scoped],
        ..ResourceSpans::default()
    };
    let resource_spans = vec![resource];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

pub fn metrics(metrics: Vec<Metric>) -> Vec<u8> {
    metrics_of(vec![(shop(), metrics)])
}

/// Metrics of several resources.
pub fn metrics_of(sent: Vec<(Resource, Vec<Metric>)>) -> Vec<u8> {
    let of_resource = |(resource, metrics)| {
        let scoped = ScopeMetrics {
            scope: Some(scope()),
            metrics,
            ..ScopeMetrics::default()
        };
        ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![scoped],
            ..ResourceMetrics::default()
        }
    };
    let resource_metrics = sent.into_iter().map(of_resource).collect();
    ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
}

/// A gauge of points at one time each, with a label `of`.
pub fn gauge(name: &str, points: impl IntoIterator<Item = (u64, String, f64)>) -> Metric {
    let point = |(time_ns, of, value): (u64, String, f64)| NumberDataPoint {
        attributes: vec![text("of", &of)],
        time_unix_nano: time_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    };
    let data_points = points.into_iter().map(point).collect();
    Metric {
        name: name.to_owned(),
        data: Some(metric::Data::Gauge(Gauge { data_points })),
        ..Metric::default()
    }
}

/// The machine's clock in the form that requests use.
pub fn now_ns() -> u64 {
    ingestd::wall_clock().0 as u64
}

/// Asks both versions of DuckDB about any directory, until they agree, because a record may arrive between the two questions.
fn ask(dir: &Path, sql: &str) -> Result<String> {
    let sql = sql.replace("DIR", &format!("'{}'", dir.display()));
    let mut answers = [String::new(), String::new()];
    let agree = wait_until(|| {
        for (answer, version) in answers.iter_mut().zip(Version::ALL) {
            *answer = Session::open(version)?.with_macros()?.value(&sql)?;
        }
        Ok(answers[0] == answers[1])
    })?;
    ensure!(agree, "{sql}: {answers:?}");
    let [answer, _] = answers;
    Ok(answer)
}

pub fn said(body: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: now_ns(),
        body: text("", body).value,
        ..LogRecord::default()
    }
}

/// A request with one point of each series.
pub fn gauges(series: impl Iterator<Item = String>) -> Vec<u8> {
    let points = series.map(|of| (now_ns(), of, 1.0));
    metrics(vec![gauge("g", points)])
}
