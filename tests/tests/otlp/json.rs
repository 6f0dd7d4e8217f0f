//! Requests in JSON, as browsers send them, give the same rows, and errors are answered in JSON.

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::wait_until;
use serde_json::{Value, json};

use crate::sender::{Receiving, now_ns};

const JSON: &str = "content-type: application/json; charset=utf-8\r\n";
const PROMOTE: &str = "promote = [{ name = 'http.route' }, { name = 'code', type = 'i64' }]";

fn resource() -> Value {
    json!({"attributes": [
        {"key": "service.name", "value": {"stringValue": "shop"}},
        {"key": "service.instance.id", "value": {"stringValue": "i1"}},
        {"key": "process.pid", "value": {"intValue": "7"}},
    ]})
}

/// Sends a request, and returns the answer's status and body.
fn post(receiving: &Receiving, path: &str, body: &str) -> Result<(u16, Value)> {
    let reply = receiving.send("POST", path, JSON, body.as_bytes())?;
    let is_json = reply.head.contains("content-type: application/json");
    ensure!(is_json, "{reply:?}");
    let body = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    Ok((reply.status, body))
}

#[test]
fn what_is_sent_in_json_is_stored_whole() -> Result<()> {
    let receiving = Receiving::new(PROMOTE)?;
    let now = now_ns();
    let logs = json!({"resourceLogs": [{"resource": resource(), "unknown": [1], "scopeLogs": [{
        "scope": {"name": "lib", "version": "1.2"},
        "logRecords": [
            {"timeUnixNano": now.to_string(), "severityNumber": 17, "body": {"stringValue": "ä\"b"},
             "traceId": "ABababababababababababababababAB", "spanId": "0102030405060708", "attributes": [
                {"key": "http.route", "value": {"stringValue": "/pay"}},
                {"key": "code", "value": {"intValue": "503"}},
                {"key": "list", "value": {"arrayValue": {"values": [{"doubleValue": 0.5}, {"intValue": 7}]}}},
                {"key": "raw", "value": {"bytesValue": "AQI="}}]},
            {"observedTimeUnixNano": now, "body": null},
        ],
    }]}]});
    ensure!(post(&receiving, "/v1/logs", &logs.to_string())? == (200, json!({})));
    let row = receiving.ask(r#"SELECT concat_ws('|', ts_ns, severity, severity_number, body, service, trace_id, span_id, "http.route", code,
           attributes->>'$.list[0]', attributes->>'$.list[1]', attributes->>'raw', scope->>'version')
           FROM loom_scan(DIR, 'logs') WHERE severity = 'ERROR'"#,
    )?;
    let trace = "ab".repeat(16);
    let wanted =
        format!("{now}|ERROR|17|ä\"b|shop|{trace}|0102030405060708|/pay|503|0.5|7|AQI=|1.2");
    ensure!(row == wanted, "{row}");
    receiving.asks("SELECT count(*) FROM loom_scan(DIR, 'logs')", "2")?;

    let spans = json!({"resourceSpans": [{"resource": resource(), "scopeSpans": [{"spans": [{
        "traceId": trace, "spanId": "0102030405060708", "parentSpanId": "", "name": "pay", "kind": 2,
        "startTimeUnixNano": (now - 5000).to_string(), "endTimeUnixNano": now.to_string(),
        "status": {"code": 2, "message": "refused"},
        "events": [{"timeUnixNano": now.to_string(), "name": "retry"}],
    }]}]}]});
    ensure!(post(&receiving, "/v1/traces", &spans.to_string())? == (200, json!({})));
    receiving.asks("SELECT concat_ws('|', name, kind, duration_ns, status, status_message, events->>'$[0].name') FROM loom_scan(DIR, 'spans')", "pay|server|5000|error|refused|retry")?;

    let bounds =
        json!({"count": "3", "sum": 6.5, "bucketCounts": ["1", 2], "explicitBounds": [2.5]});
    let mut histogram = bounds;
    histogram
        .as_object_mut()
        .context("an object")?
        .insert("timeUnixNano".to_owned(), now.to_string().into());
    let metrics = json!({"resourceMetrics": [{"resource": resource(), "scopeMetrics": [{"metrics": [
        {"name": "requests", "sum": {"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [
            {"timeUnixNano": now.to_string(), "asInt": "9007199254740993", "attributes": [{"key": "route", "value": {"stringValue": "/pay"}}]}]}},
        {"name": "load", "gauge": {"dataPoints": [{"timeUnixNano": now, "asDouble": 0.25}]}},
        {"name": "took", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": [histogram]}},
        {"name": "deltas", "sum": {"aggregationTemporality": 1, "dataPoints": [{"timeUnixNano": now.to_string(), "asInt": "1"}]}},
    ]}]}]});
    let (status, body) = post(&receiving, "/v1/metrics", &metrics.to_string())?;
    let partial = &body["partialSuccess"];
    let why = partial["errorMessage"].as_str().unwrap_or_default();
    let is_partial = status == 200 && partial["rejectedDataPoints"] == "1";
    ensure!(is_partial && why.contains("deltas"), "{status} {body}");
    let shown =
        "coalesce(labels['le'], labels['route'], labels['process_pid'], '-') || ' ' || value";
    for (metric, wanted) in [
        ("load", "- 0.25"),
        // The value that a double holds.
        ("requests_total", "/pay 9007199254740992.0"),
        ("took_seconds_bucket", "+Inf 3.0, 2.5 1.0"),
        ("took_seconds_count", "- 3.0"),
        ("took_seconds_sum", "- 6.5"),
        ("target_info", "7 1.0"),
        ("deltas", ""),
    ] {
        let series = format!(
            "SELECT coalesce(string_agg({shown}, ', ' ORDER BY {shown}), '') FROM loom_series(DIR, '{metric}')"
        );
        receiving.asks(&series, wanted)?;
    }
    receiving.stop_sound()
}

/// In JSON, an empty list or text may be omitted or `null`.
#[test]
fn what_is_empty_is_taken_where_it_is_left_out_and_where_it_is_null() -> Result<()> {
    let receiving = Receiving::new("")?;
    let empty = json!([
        {"key": "list", "value": {"arrayValue": {}}},
        {"key": "none", "value": {"arrayValue": {"values": null}}},
        {"key": "map", "value": {"kvlistValue": {}}},
        {"value": {"intValue": "1"}},
    ]);
    let logs = json!({"resourceLogs": [{"resource": {"attributes": empty}, "scopeLogs": [{
        "scope": {"attributes": empty},
        "logRecords": [{"body": {"arrayValue": {}}, "attributes": empty}],
    }]}]});
    ensure!(post(&receiving, "/v1/logs", &logs.to_string())? == (200, json!({})));
    let row = receiving.ask(
        "SELECT concat_ws('|', body, attributes, resource, scope) FROM loom_scan(DIR, 'logs')",
    )?;
    let kept = r#"{"list":[],"none":[],"map":{},"":1}"#;
    ensure!(
        row == format!("[]|{kept}|{kept}|{{\"attributes\":{kept}}}"),
        "{row}"
    );
    receiving.stop()
}

#[test]
fn bad_json_is_refused_in_json_counted_and_named() -> Result<()> {
    let receiving = Receiving::new("body_max = '8MiB'")?;
    let record = |record: &str| {
        format!(r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{record}]}}]}}]}}"#)
    };
    let deep = format!(
        r#"{{"body":{}{{}}{}}}"#,
        r#"{"arrayValue":{"values":["#.repeat(200),
        "]}}".repeat(200)
    );
    let long = format!(r#"{{"body":{{"stringValue":"{}"}}}}"#, "a".repeat(5 << 20));
    let empties = vec!["{}"; 1_000_000].join(",");
    let many = format!(r#"{{"attributes":[{empties},{empties}]}}"#);
    for (body, why) in [
        ("{", "EOF"),
        ("[1]", "invalid"),
        (r#"{"resourceLogs":7}"#, "invalid type"),
    ] {
        let (status, said) = post(&receiving, "/v1/logs", body)?;
        let message = said["message"].as_str().unwrap_or_default();
        let is_said = status == 400 && said["code"] == 3 && message.contains(why);
        ensure!(is_said, "{status} {said}, wanted {why}");
    }
    let counted = [
        (&record(r#"{"traceId":"xyz"}"#), "not OTLP in JSON"),
        (&record(r#"{"timeUnixNano":"-1"}"#), "invalid digit"),
        (
            &record(r#"{"body":{"bytesValue":"%"}}"#),
            "not OTLP in JSON",
        ),
        (&record(&deep), "recursion limit"),
        (&record(&long), "more than 4194304 bytes"),
        (&record(&many), "more than 4194304 bytes"),
    ];
    // The record's neighbours are stored.
    let good = r#"{"body":{"stringValue":"good"}}"#;
    for (body, why) in counted {
        let body = body.replace("Records\":[", &format!("Records\":[{good},"));
        let (status, said) = post(&receiving, "/v1/logs", &body)?;
        let partial = &said["partialSuccess"];
        let message = partial["errorMessage"].as_str().unwrap_or_default();
        let is_said = partial["rejectedLogRecords"] == "1" && message.contains(why);
        ensure!(status == 200 && is_said, "{status} {said}, wanted {why}");
    }
    receiving.asks(
        "SELECT count(*) FROM loom_scan(DIR, 'logs') WHERE body = 'good'",
        counted.len().to_string(),
    )?;
    let point = json!({"timeUnixNano": now_ns().to_string(), "asDouble": 1.0});
    let of_metrics = |metrics: Value| {
        json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).to_string()
    };
    let gauge = |points: Value| json!({"gauge": {"dataPoints": points}});
    let odd_map = json!([{"asDouble": 1.0, "attributes": {"a": "b"}}]);
    let odd_time = json!([point, {"timeUnixNano": "noon", "asDouble": 1.0}]);
    let odd_flag = json!({"sum": {"isMonotonic": "true", "dataPoints": [point]}});
    let odd_count = json!({"histogram": {"dataPoints": [{"bucketCounts": ["a", "2"]}]}});
    let bad_metrics = [
        (json!({"gauge": 5}), "invalid type"),
        (gauge(json!("x")), "invalid type"),
        (gauge(odd_time), "invalid digit"),
        (gauge(odd_map), "invalid type"),
        (odd_flag, "invalid type"),
        (odd_count, "invalid digit"),
    ];
    for (bad, why) in &bad_metrics {
        let mut bad = bad.clone();
        bad["name"] = "bad".into();
        let good = json!({"name": "good", "gauge": {"dataPoints": [point]}});
        let (status, said) = post(&receiving, "/v1/metrics", &of_metrics(json!([bad, good])))?;
        let partial = &said["partialSuccess"];
        let message = partial["errorMessage"].as_str().unwrap_or_default();
        let is_said = partial["rejectedDataPoints"] == "1" && message.contains(why);
        ensure!(
            status == 200 && is_said,
            "{status} {said}, wanted {why} of {bad}"
        );
    }
    receiving.asks("SELECT count(*) > 0 FROM loom_series(DIR, 'good')", "true")?;
    let unknown = json!([{"name": "m", "guage": {"dataPoints": [point]}}]);
    let (_, said) = post(&receiving, "/v1/metrics", &of_metrics(unknown))?;
    let partial = &said["partialSuccess"];
    let is_partial = partial["rejectedDataPoints"] == "1"
        && partial["errorMessage"] == "1: a metric has no data that Loom knows, such as m";
    ensure!(is_partial, "{said}");
    ensure!(post(&receiving, "/v1/log", "{}")?.0 == 404);
    ensure!(post(&receiving, "/v1/logs", "{}")? == (200, json!({})));
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    let wanted = (3 + counted.len() + bad_metrics.len() + 1).to_string();
    let is_counted = wait_until(|| Ok(receiving.ask(lost)? == wanted))?;
    ensure!(is_counted, "{} of {wanted}", receiving.ask(lost)?);
    // An empty record counts, and none of so many is lost without being counted.
    let (status, said) = post(&receiving, "/v1/logs", &record(&empties))?;
    let rejected = said["partialSuccess"]["rejectedLogRecords"].as_str();
    let rejected: u64 = rejected.unwrap_or("0").parse()?;
    ensure!(status == 200, "{status} {said}");
    let stored = receiving.ask("SELECT count(*) FROM loom_scan(DIR, 'logs')")?;
    ensure!(
        stored.parse::<u64>()? + rejected == (1_000_000 + counted.len()) as u64,
        "{stored} {rejected}"
    );
    receiving.stop()
}
