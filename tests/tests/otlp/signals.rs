//! Logs, spans and metrics of well-behaved senders.

use anyhow::{Result, ensure};
use ingestd::config::SEVERITIES;
use loom_tests::command::says;
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum, Summary, SummaryDataPoint,
    metric, number_data_point, summary_data_point,
};
use opentelemetry_proto::tonic::trace::v1::{Span, Status, span};

use crate::sender::{Receiving, attribute, int, logs, metrics, now_ns, spans, text};

const PROMOTE: &str =
    "promote = [{ name = 'http.route' }, { name = 'code', type = 'i64' }, { name = 'host.name' }]";

fn record(time_ns: u64, body: &str) -> LogRecord {
    LogRecord {
        time_unix_nano: time_ns,
        severity_number: 17,
        severity_text: "error".to_owned(),
        body: text("", body).value,
        ..LogRecord::default()
    }
}

// case Metrics: logs and spans over OTLP
#[test]
fn a_log_record_is_a_row_with_all_that_was_sent() -> Result<()> {
    let receiving = Receiving::new(PROMOTE)?;
    let now = now_ns();
    let list = any_value::Value::ArrayValue(ArrayValue {
        values: vec![AnyValue {
            value: Some(any_value::Value::DoubleValue(0.5)),
        }],
    });
    let whole = LogRecord {
        trace_id: vec![0xAB; 16],
        span_id: vec![1; 8],
        event_name: "checkout".to_owned(),
        attributes: vec![
            text("http.route", "/pay"),
            int("code", 503),
            text("user", "ä\"b"),
            attribute("list", list),
        ],
        ..record(now - 1_000_000, "payment failed")
    };
    let bare = LogRecord {
        observed_time_unix_nano: now,
        // The attribute has another type than its field, so it stays among the others.
        attributes: vec![text("code", "teapot")],
        ..LogRecord::default()
    };
    receiving.takes_all("/v1/logs", &logs(vec![whole, bare]))?;
    // Records can be read as soon as their request is answered.
    receiving.asks("SELECT count(*) FROM loom_scan(DIR, 'logs')", "2")?;
    let row = receiving.ask(r#"SELECT concat_ws('|', severity, severity_text, body, service, event, trace_id, span_id, "http.route", code, "host.name",
           attributes->>'user', attributes->>'$.list[0]', resource->>'$."service.instance.id"', scope->>'version')
           FROM loom_scan(DIR, 'logs') WHERE severity = 'ERROR'"#,
    )?;
    let wanted = format!(
        "ERROR|error|payment failed|shop|checkout|{}|{}|/pay|503|h1|ä\"b|0.5|i1|1.2",
        "ab".repeat(16),
        "01".repeat(8)
    );
    ensure!(row == wanted, "{row}");
    receiving.asks(
        "SELECT min(ts_ns) FROM loom_scan(DIR, 'logs')",
        (now - 1_000_000).to_string(),
    )?;
    receiving.asks("SELECT concat_ws('|', ts_ns, code IS NULL, severity IS NULL, body IS NULL, attributes->>'code') \
         FROM loom_scan(DIR, 'logs') WHERE severity_text IS NULL", format!("{now}|true|true|true|teapot"))?;
    receiving.stop_sound()
}

/// One record of each severity, from none to one above the last, with its number as the body.
fn of_each_severity() -> Vec<u8> {
    let of_severity = |number: i32| LogRecord {
        severity_number: number,
        severity_text: String::new(),
        ..record(now_ns(), &number.to_string())
    };
    logs((0..=25).map(of_severity).collect())
}

// case Metrics: logs and spans over OTLP
#[test]
fn severities_compare_as_their_numbers_do() -> Result<()> {
    let receiving = Receiving::new("")?;
    receiving.takes_all("/v1/logs", &of_each_severity())?;
    // A number without a name is in `severity` only.
    let without = "SELECT string_agg(body || '=' || coalesce(severity, 'none'), ' ' ORDER BY body) FROM loom_scan(DIR, 'logs') \
                   WHERE severity_number IS NULL OR severity_number <> body::INTEGER";
    receiving.asks(without, "0=none 25=25")?;
    let differ = |op: &str| {
        format!(
            "(a.severity_number {op} b.severity_number) IS DISTINCT FROM (a.body::INTEGER {op} b.body::INTEGER)"
        )
    };
    let differ = ["<", "<=", ">", ">=", "="].map(differ).join(" OR ");
    let named = "(FROM loom_scan(DIR, 'logs') WHERE severity_number IS NOT NULL)";
    let pairs = format!("SELECT count(*) || ' ' || count_if({differ}) FROM {named} a, {named} b");
    receiving.asks(&pairs, "576 0")?;
    // Bounds by name, and by number.
    let scans = SEVERITIES.iter().zip(1..).flat_map(|(name, number)| {
        ["v_min", "v_max"].map(|bound| {
            let count = |index: &str, value: &str| {
                format!("(SELECT count(*) FROM loom_scan(DIR, 'logs', index := '{index}', {bound} := {value}))")
            };
            let wanted = match bound {
                "v_min" => 26 - number,
                _ => number,
            };
            let by_name = count("severity", &format!("'{name}'"));
            let by_number = count("severity_number", &number.to_string());
            let foreign = usize::from(bound == "v_min");
            format!("{by_name} = {wanted} AND {by_number} = {}", wanted - foreign)
        })
    });
    let all = scans.collect::<Vec<_>>().join(" AND ");
    ensure!(receiving.ask(&format!("SELECT {all}"))? == "true", "{all}");
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let dir = receiving.dir().display();
        let unknown =
            format!("FROM loom_scan('{dir}', 'logs', index := 'severity', v_min := 'WARNING')");
        let error = session.query(&unknown).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        ensure!(
            error.contains("'WARNING' is not a label of 'severity'")
                && error.contains("WARN, WARN2"),
            "{error}"
        );
    }
    receiving.stop()
}

// case Metrics: logs and spans over OTLP
#[test]
fn a_directory_of_logs_without_severity_numbers_gets_them_behind_its_fields() -> Result<()> {
    let mut before = "[[source]]\nname = 'logs'\ntime = 'own'\n".to_owned();
    let fields = "severity i32, severity_text utf8, body utf8, service utf8, event utf8, trace_id char[32], \
                  span_id char[16], attributes json, resource json, scope json, http.route utf8";
    for (name, ty) in fields.split(", ").filter_map(|field| field.split_once(' ')) {
        let field = format!("name = '{name}'\ntype = '{ty}'\nnullable = true\n");
        before.push_str(&format!("[[source.field]]\n{field}"));
    }
    let place = tempfile::tempdir()?;
    let dir = place.path().join("o.loom");
    Daemon::start(&dir, &before)?.stop()?;
    for (promote, code) in [("", "none"), (PROMOTE, "7"), ("", "none")] {
        let receiving = Receiving::start(&dir, promote)?;
        let mut sent = record(now_ns(), "sent");
        sent.attributes = vec![text("http.route", "/pay"), int("code", 7)];
        receiving.takes_all("/v1/logs", &logs(vec![sent]))?;
        let wanted = format!("17 ERROR sent {code}");
        let latest = match promote {
            "" => "'none'",
            _ => "coalesce(code::VARCHAR, 'none')",
        };
        let row = format!(
            "SELECT concat_ws(' ', severity_number, severity, body, {latest}) FROM loom_scan(DIR, 'logs') ORDER BY addr DESC LIMIT 1"
        );
        receiving.asks(&row, wanted)?;
        receiving.stop()?;
    }
    Ok(())
}

fn a_span(start_ns: u64, duration_ns: u64) -> Span {
    Span {
        trace_id: vec![7; 16],
        span_id: start_ns.to_be_bytes().to_vec(),
        name: "GET /pay".to_owned(),
        kind: 2,
        start_time_unix_nano: start_ns,
        end_time_unix_nano: start_ns + duration_ns,
        ..Span::default()
    }
}

// case Metrics: logs and spans over OTLP
#[test]
fn a_span_is_a_row_and_its_duration_is_an_index() -> Result<()> {
    let receiving = Receiving::new(PROMOTE)?;
    let now = now_ns();
    let whole = Span {
        parent_span_id: vec![9; 8],
        trace_state: "a=b".to_owned(),
        status: Some(Status {
            code: 2,
            message: "timeout".to_owned(),
        }),
        attributes: vec![text("http.route", "/pay"), int("code", 200)],
        events: vec![span::Event {
            time_unix_nano: now,
            name: "retry".to_owned(),
            attributes: vec![int("n", 3)],
            ..span::Event::default()
        }],
        links: vec![span::Link {
            trace_id: vec![8; 16],
            span_id: vec![8; 8],
            ..span::Link::default()
        }],
        ..a_span(now - 5_000_000, 3_000_000)
    };
    let mut sent: Vec<Span> = (1..=999).map(|n| a_span(now - n * 1_000_000, n)).collect();
    sent.push(whole);
    receiving.takes("/v1/traces", &spans(sent))?;
    let row = receiving.ask(r#"SELECT concat_ws('|', name, service, kind, status, status_message, trace_id, parent_span_id, trace_state, "http.route", code,
           events->>'$[0].name', events->>'$[0].attributes.n', links->>'$[0].span_id', attributes IS NULL)
           FROM loom_scan(DIR, 'spans', index := 'duration', v_min := 1000000)"#,
    )?;
    let wanted = format!(
        "GET /pay|shop|server|error|timeout|{}|{}|a=b|/pay|200|retry|3|{}|true",
        "07".repeat(16),
        "09".repeat(8),
        "08".repeat(8)
    );
    ensure!(row == wanted, "{row}");
    receiving.asks(
        "SELECT count || '|' || max FROM loom_aggregate(DIR, 'spans', 'duration')",
        "1000|3000000",
    )?;
    receiving.stop()
}

fn number(time_ns: u64, value: f64, of: &str) -> NumberDataPoint {
    NumberDataPoint {
        attributes: vec![text("of", of)],
        time_unix_nano: time_ns,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn a_metric(name: &str, unit: &str, data: metric::Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn counter(points: Vec<NumberDataPoint>, aggregation_temporality: i32) -> metric::Data {
    metric::Data::Sum(Sum {
        data_points: points,
        aggregation_temporality,
        is_monotonic: true,
    })
}

// case Metrics: data points over OTLP
#[test]
fn data_points_are_series_as_prometheus_names_them() -> Result<()> {
    let receiving = Receiving::new("")?;
    let now = now_ns();
    let histogram = HistogramDataPoint {
        time_unix_nano: now,
        count: 6,
        sum: Some(12.5),
        bucket_counts: vec![1, 2, 3],
        explicit_bounds: vec![0.5, 10.0],
        ..HistogramDataPoint::default()
    };
    let summary = SummaryDataPoint {
        time_unix_nano: now,
        count: 4,
        sum: 8.0,
        quantile_values: vec![summary_data_point::ValueAtQuantile {
            quantile: 0.99,
            value: 3.0,
        }],
        ..SummaryDataPoint::default()
    };
    let sent = |n: u64| {
        let now = now + n * 1_000_000_000;
        let requests = counter(vec![number(now, n as f64, "a")], 2);
        let data_points = vec![number(now, 0.5, "b")];
        let load = metric::Data::Gauge(Gauge { data_points });
        vec![
            a_metric("http.requests", "{request}", requests),
            a_metric("cpu.load", "1", load),
        ]
    };
    for n in 0..3 {
        receiving.takes("/v1/metrics", &metrics(sent(n)))?;
    }
    let histograms = |point: &HistogramDataPoint, aggregation_temporality| {
        metric::Data::Histogram(Histogram {
            data_points: vec![point.clone()],
            aggregation_temporality,
        })
    };
    let unordered = HistogramDataPoint {
        explicit_bounds: vec![10.0, 0.5],
        ..histogram.clone()
    };
    let data_points = vec![summary];
    let once = vec![
        a_metric("latency", "s", histograms(&histogram, 2)),
        a_metric("unordered", "s", histograms(&unordered, 2)),
        a_metric("gc", "ms", metric::Data::Summary(Summary { data_points })),
        a_metric("deltas", "", counter(vec![number(now, 1.0, "c")], 1)),
        a_metric("delta.latency", "s", histograms(&histogram, 1)),
    ];
    let (refused, why) = receiving.post("/v1/metrics", &metrics(once))?.refused()?;
    ensure!(refused == 3, "{why}");
    for words in ["deltas", "cumulative", "ascend, such as unordered"] {
        says(&why, words);
    }
    for (metric, labels, values) in [
        ("http_requests_total", "of=a", "[0.0, 1.0, 2.0]"),
        ("cpu_load_ratio", "of=b", "[0.5, 0.5, 0.5]"),
        ("latency_seconds_bucket", "le=+Inf", "[6.0]"),
        ("latency_seconds_bucket", "le=0.5", "[1.0]"),
        ("latency_seconds_bucket", "le=10", "[3.0]"),
        ("latency_seconds_sum", "job=shop", "[12.5]"),
        ("latency_seconds_count", "instance=i1", "[6.0]"),
        ("gc_milliseconds", "quantile=0.99", "[3.0]"),
        ("gc_milliseconds_count", "job=shop", "[4.0]"),
    ] {
        let (label, value) = labels.split_once('=').unwrap_or_default();
        receiving.asks(&format!(
                "SELECT list(value ORDER BY ts) FROM loom_series(DIR, '{metric}') WHERE labels['{label}'] = '{value}'"
            ), values)?;
    }
    for refused in ["deltas_total", "unordered_seconds_count"] {
        let count = format!("SELECT count(*) FROM loom_series(DIR, '{refused}')");
        receiving.asks(&count, "0")?;
    }
    receiving.asks(
        "SELECT string_agg(name) FROM loom_sources(DIR) WHERE name LIKE 'metrics/%'",
        "metrics/shop/i1",
    )?;
    receiving.asks("SELECT sum(records) FROM loom_losses(DIR)", "3")?;
    receiving.stop()
}

// case Metrics: logs and spans over OTLP
#[test]
fn what_is_sent_again_or_after_a_restart_goes_to_the_same_fields() -> Result<()> {
    let now = now_ns();
    let gauge = |time_ns| {
        let data_points = vec![number(time_ns, 1.0, "x")];
        let gauge = metric::Data::Gauge(Gauge { data_points });
        metrics(vec![a_metric("g", "", gauge)])
    };
    let mut receiving = Receiving::new("")?;
    for life in 0..2 {
        // A sender that did not get an answer sends the same again.
        for _ in 0..2 {
            receiving.takes("/v1/metrics", &gauge(now + life * 1_000_000))?;
        }
        receiving.takes("/v1/logs", &logs(vec![record(now, "life")]))?;
        receiving = receiving.killed_and_started("promote = [{ name = 'new' }]")?;
    }
    let promoted = LogRecord {
        attributes: vec![text("new", "field")],
        ..record(now, "life")
    };
    receiving.takes("/v1/logs", &logs(vec![promoted]))?;
    let series = "SELECT count(*) || '|' || count(DISTINCT labels) FROM loom_series(DIR, 'g')";
    receiving.asks(series, "2|1")?;
    let rows = "SELECT count(*) || '|' || count(new) FROM loom_scan(DIR, 'logs')";
    receiving.asks(rows, "3|1")?;
    receiving.stop()
}

// case Metrics: logs and spans over OTLP
#[test]
fn grpc_at_the_same_address_takes_the_same_requests() -> Result<()> {
    if !machine::has("gRPC", &["curl"])? {
        return Ok(());
    }
    let receiving = Receiving::new("")?;
    let message = logs(vec![record(now_ns(), "over grpc")]);
    let exported = |method: &str, message: &[u8], claimed: usize| -> Result<String> {
        let mut body = vec![0];
        body.extend_from_slice(&(claimed as u32).to_be_bytes());
        body.extend_from_slice(message);
        let file = receiving.place().join("body");
        std::fs::write(&file, body)?;
        let said = std::process::Command::new("curl")
            .args(["-s", "-i", "-m", "20", "--http2-prior-knowledge"])
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
            .arg("--data-binary")
            .arg(format!("@{}", file.display()))
            .arg(format!("http://{}/{method}", receiving.address))
            .output()?;
        Ok(String::from_utf8_lossy(&said.stdout).into_owned())
    };
    const LOGS: &str = "opentelemetry.proto.collector.logs.v1.LogsService/Export";
    for (method, message, claimed, status) in [
        (LOGS, &message[..], message.len(), "grpc-status: 0"),
        (LOGS, &message[..], 5_000_000_000, "grpc-status: 11"),
        (LOGS, &message[..40], 40, "grpc-status: 3"),
        (&LOGS.replace("Export", "Import"), &[], 0, "grpc-status: 12"),
    ] {
        // curl does not read an answer while it still sends the request.
        let is_said = || Ok(exported(method, message, claimed)?.contains(status));
        ensure!(
            wait_until(is_said)?,
            "{method} {claimed}: {}",
            exported(method, message, claimed)?
        );
    }
    receiving.asks(
        "SELECT string_agg(body) FROM loom_scan(DIR, 'logs')",
        "over grpc",
    )?;
    receiving.stop()
}
