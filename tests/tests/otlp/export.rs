//! `ingestd export --format otlp`: what was sent is exported, and another daemon that receives it has the same rows.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_tests::command::{Ended, eventually, ingestd, word};
use serde_json::{Value, json};

use crate::sender::{Receiving, now_ns};

const JSON: &str = "content-type: application/json\r\n";
const PROMOTE: &str = "promote = [{ name = 'http.route' }, { name = 'code', type = 'i64' }, { name = 'host.name' }, { name = 'f', type = 'f64' }]";

fn resource(host: &str) -> Value {
    json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "host.name", "value": {"stringValue": host}},
    ]})
}

/// A span with a trace and an id of its number.
fn span(number: u64, now: u64, more: &Value) -> Value {
    let mut span = json!({
        "traceId": format!("{:032x}", number % 2 + 1), "spanId": format!("{number:016x}"), "name": format!("s{number}"),
        "kind": number % 7, "startTimeUnixNano": (now + number).to_string(),
        "endTimeUnixNano": (now + 10 * number).to_string(), "status": {"code": number % 3},
    });
    if let (Some(span), Some(more)) = (span.as_object_mut(), more.as_object()) {
        span.extend(more.clone());
    }
    span
}

/// Requests as an export writes them, each with records of one resource and scope.
fn requests(now: u64) -> Vec<Value> {
    let whole = json!({
        "parentSpanId": "0101010101010101", "traceState": "a=b", "status": {"code": 2, "message": "no"},
        "attributes": [
            {"key": "http.route", "value": {"stringValue": "/p"}},
            {"key": "code", "value": {"intValue": "7"}},
            {"key": "f", "value": {"doubleValue": "NaN"}},
            {"key": "least", "value": {"intValue": i64::MIN.to_string()}},
            {"key": "double", "value": {"doubleValue": 0.1}},
            {"key": "one", "value": {"doubleValue": 1.0}},
            {"key": "list", "value": {"arrayValue": {"values": [
                {"boolValue": true}, {}, {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "ä\"\n"}}]}},
            ]}}},
            {"key": "none"},
        ],
        "events": [{"timeUnixNano": now.to_string(), "name": "e", "attributes": [{"key": "n", "value": {"intValue": "3"}}]}, {"name": "x"}],
        "links": [{"traceId": "08".repeat(16), "spanId": "09".repeat(8), "traceState": "q"}],
    });
    let other_type = json!({"attributes": [{"key": "code", "value": {"stringValue": "teapot"}}]});
    let own_host = json!({"attributes": [{"key": "host.name", "value": {"stringValue": "own"}}]});
    let scope = json!({"name": "lib", "version": "1", "attributes": [{"key": "code", "value": {"intValue": "5"}}]});
    let spans = |resource: Value, scope: &Value, spans: Vec<Value>| json!({"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": spans}]}]});
    let mut unended = span(1, now, &json!({}));
    unended
        .as_object_mut()
        .map(|span| span.remove("endTimeUnixNano"));
    let many = (6..600).map(|number| span(number, now, &json!({"traceState": "x".repeat(1000)})));
    let log = json!({
        "timeUnixNano": now.to_string(), "severityNumber": 17, "severityText": "err", "body": {"stringValue": "{\"b\": 1}"},
        "eventName": "ev", "traceId": format!("{:032x}", 1), "spanId": "0101010101010101",
        "attributes": [{"key": "a", "value": {"boolValue": false}}],
    });
    let bare = json!({"timeUnixNano": (now + 5).to_string(), "severityNumber": 25});
    vec![
        json!({"resourceLogs": [{"resource": resource("h2"), "scopeLogs": [{"scope": {"name": "lib"}, "logRecords": [log, bare]}]}]}),
        spans(
            resource("h1"),
            &scope,
            vec![
                unended,
                span(2, now, &whole),
                span(3, now, &other_type),
                span(4, now, &own_host),
            ],
        ),
        spans(resource("h1"), &json!({}), vec![span(5, now, &json!({}))]),
        spans(json!({"attributes": []}), &json!({}), many.collect()),
    ]
}

fn send(receiving: &Receiving, request: &Value) -> Result<()> {
    let path = match request.get("resourceSpans") {
        Some(_) => "/v1/traces",
        None => "/v1/logs",
    };
    let reply = receiving.send("POST", path, JSON, request.to_string().as_bytes())?;
    ensure!((reply.status, &*reply.body) == (200, b"{}"), "{reply:?}");
    Ok(())
}

fn export(dir: &Path, more: &[&str]) -> Ended {
    let words = ["export", word(dir), "--format", "otlp", "--out", "-"];
    Ended::of(&mut ingestd(words.into_iter().chain(more.iter().copied())))
}

fn lines(exported: &str) -> Result<Vec<Value>> {
    let lines = exported.lines().map(serde_json::from_str);
    lines.collect::<Result<_, _>>().context("a line is no JSON")
}

/// The spans and logs of some lines, without those of the same resource and scope in lines of their own.
fn records(lines: &[Value]) -> Vec<Value> {
    let of = |line: &Value, [resources, scopes, records]: [&str; 3]| {
        let of_scope = line.pointer(&format!("/{resources}/0/{scopes}/0"));
        let origin = json!([
            line.pointer(&format!("/{resources}/0/resource")),
            of_scope.map(|scope| &scope["scope"])
        ]);
        let records = of_scope.and_then(|scope| scope[records].as_array());
        let records = records.into_iter().flatten();
        records
            .map(|record| json!([origin, record]))
            .collect::<Vec<_>>()
    };
    let both = lines.iter().flat_map(|line| {
        [
            of(line, ["resourceLogs", "scopeLogs", "logRecords"]),
            of(line, ["resourceSpans", "scopeSpans", "spans"]),
        ]
    });
    both.flatten().collect()
}

// case Metrics: logs and spans over OTLP
#[test]
fn what_was_sent_is_exported_and_received_elsewhere_as_the_same_rows() -> Result<()> {
    let (first, second) = (Receiving::new(PROMOTE)?, Receiving::new(PROMOTE)?);
    let sent = requests(now_ns());
    for request in &sent {
        send(&first, request)?;
    }
    let exported = export(first.dir(), &[]).ends(0).says("rows=601").out;
    let found = lines(&exported)?;
    ensure!(records(&found) == records(&sent), "{exported}");
    // Spans of 600 KB are in several lines, because receivers limit their length.
    ensure!(found.len() == sent.len() + 2, "{} lines", found.len());
    for line in &found {
        send(&second, line)?;
    }
    for source in ["spans", "logs"] {
        let rows = format!(
            "SELECT string_agg(row::VARCHAR, chr(10) ORDER BY row::VARCHAR) FROM (SELECT * EXCLUDE (addr, dir) FROM loom_scan(DIR, '{source}')) AS row"
        );
        second.asks(&rows, first.ask(&rows)?)?;
    }

    let of_trace = |id: &str| export(first.dir(), &["--trace-id", id]);
    let wanted = format!("{:032X}", 1);
    let one = lines(&of_trace(&wanted).ends(0).out)?;
    let mut of_one = records(&sent);
    of_one.retain(|record| record[1]["traceId"] == wanted.as_str());
    ensure!(
        records(&one) == of_one && of_one.len() == 300,
        "{}",
        of_one.len()
    );
    let third = Receiving::new(PROMOTE)?;
    let url = format!("http://{}", third.address);
    let to = |url: &str| {
        Ended::of(&mut ingestd([
            "export",
            word(first.dir()),
            "--format",
            "otlp",
            "--out",
            url,
        ]))
    };
    to(&url).ends(0).says("rows=601");
    for source in ["spans", "logs"] {
        let count = format!("SELECT count(*) FROM loom_scan(DIR, '{source}')");
        third.asks(&count, first.ask(&count)?)?;
    }
    third.stop()?;
    to(&url).ends(1).says("refused the connection");
    of_trace("12")
        .ends(2)
        .says("give its 32 hexadecimal digits");
    let file = first.place().join("none.jsonl");
    let words = [
        "export",
        word(first.dir()),
        "--format",
        "otlp",
        "--out",
        word(&file),
        "--source",
        "loom_metrics",
    ];
    // The daemon defines the source with its first report.
    let refused = eventually(|| {
        let ended = Ended::of(&mut ingestd(words));
        (!ended.err.contains("unknown source")).then_some(ended)
    });
    refused
        .ends(1)
        .says("has no spans or logs of OTLP; export 'spans' or 'logs'");
    ensure!(!fs::exists(&file)?);
    first.stop()?;
    second.stop()
}
