//! Senders that are hostile or out of order: each gets an error or a counted refusal, nothing of a bad request is stored, and the daemon
//! goes on.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use loom_tests::command::{certificate, says};
use loom_tests::daemon::{ingestd, wait_until};
use loom_tests::machine;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValueList, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::sender::{Receiving, attribute, gauge, gauges, logs, metrics, now_ns, said, spans};

fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The method, path, headers and body of a request, the status of its answer, and a part of the answer's text.
type Case<'a> = (&'a str, &'a str, &'a str, &'a [u8], u16, &'a str);

const PROTOBUF: &str = "content-type: application/x-protobuf\r\n";
const PACKED: &str = "content-type: application/x-protobuf\r\ncontent-encoding: gzip\r\n";

// case Metrics: requests that are cut, nested deep, packed bombs, too long, of another format or path
#[test]
fn each_bad_request_is_an_error_that_says_why_and_the_daemon_goes_on() -> Result<()> {
    let receiving = Receiving::new("body_max = '1MiB'")?;
    let good = logs(vec![said("good")]);
    let bomb = packed(&vec![0; 64 << 20])?;
    let mut deep = AnyValue::default();
    for _ in 0..200 {
        let mut inner = attribute("k", any_value::Value::IntValue(0));
        inner.value = Some(deep);
        let values = vec![inner];
        let list = any_value::Value::KvlistValue(KeyValueList { values });
        deep = AnyValue { value: Some(list) };
    }
    let deep = logs(vec![LogRecord {
        body: Some(deep),
        ..LogRecord::default()
    }]);
    let html = "content-type: text/html\r\n";
    let zstd = "content-type: application/x-protobuf\r\ncontent-encoding: zstd\r\n";
    let long = vec![0; 2 << 20];
    let counted = [
        (
            "POST",
            "/v1/logs",
            PROTOBUF,
            &good[..good.len() - 3],
            400,
            "are left",
        ),
        (
            "POST",
            "/v1/traces",
            PROTOBUF,
            &[0xFF; 5000],
            400,
            "not OTLP",
        ),
        (
            "POST",
            "/v1/metrics",
            PROTOBUF,
            &[10, 0x7F],
            400,
            "not OTLP",
        ),
        (
            "POST",
            "/v1/logs",
            PACKED,
            &bomb,
            413,
            "longer than body_max",
        ),
        ("POST", "/v1/logs", PACKED, &good, 400, "not gzip"),
        (
            "POST",
            "/v1/logs",
            PROTOBUF,
            &long,
            413,
            "longer than body_max",
        ),
    ];
    let others: [Case; 4] = [
        ("GET", "/v1/logs", PROTOBUF, &[], 405, "use POST"),
        ("POST", "/v1/log", PROTOBUF, &good, 404, "/v1/logs"),
        ("POST", "/v1/logs", html, &good, 415, "x-protobuf"),
        ("POST", "/v1/logs", zstd, &good, 415, "gzip"),
    ];
    for (method, path, headers, body, status, why) in counted.into_iter().chain(others) {
        let reply = receiving.send(method, path, headers, body)?;
        let about = format!("{method} {path} {headers}: {reply:?} {}", reply.why());
        ensure!(
            reply.status == status && reply.why().contains(why),
            "{about}"
        );
    }
    receiving.refuses("/v1/logs", &deep, 1, "not a log record of OTLP")?;
    // Five gigabytes that are only claimed.
    let claim = "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 5000000000\r\n\r\nxxxx";
    ensure!(receiving.raw(claim.as_bytes())?.status == 413);
    let reply = receiving.send("POST", "/v1/logs", PACKED, &packed(&good)?)?;
    ensure!(reply.refused()?.0 == 0, "{reply:?}");
    receiving.asks(
        "SELECT string_agg(body) FROM loom_scan(DIR, 'logs')",
        "good",
    )?;
    let lost = "SELECT sum(records) FROM loom_losses(DIR)";
    let wanted = (counted.len() + 2).to_string();
    receiving.asks_until(lost, wanted)?;
    receiving.stop_sound()
}

/// The bytes of a request whose text `mark` is cut within a character.
fn cut(mut request: Vec<u8>) -> Vec<u8> {
    let marks = request.windows(4).enumerate();
    let marks: Vec<usize> = marks
        .filter(|(_, bytes)| bytes == b"mark")
        .map(|(at, _)| at)
        .collect();
    for at in marks {
        if let Some(last) = request.get_mut(at + 3) {
            *last = 0xC3;
        }
    }
    request
}

#[test]
fn texts_that_are_not_utf8_are_repaired_and_their_sender_learns_of_it() -> Result<()> {
    let receiving = Receiving::new("")?;
    let sent = cut(logs(vec![said("good"), said("mark"), said("good too")]));
    receiving.refuses("/v1/logs", &sent, 0, "not UTF-8")?;
    let kept = "SELECT string_agg(body, ',' ORDER BY body) FROM loom_scan(DIR, 'logs')";
    receiving.asks(kept, "good,good too,mar\u{FFFD}")?;
    let sent = cut(metrics(vec![
        gauge("mark", [(now_ns(), "a".to_owned(), 1.0)]),
        gauge("sound", [(now_ns(), "mark".to_owned(), 2.0)]),
    ]));
    receiving.refuses("/v1/metrics", &sent, 0, "not UTF-8")?;
    receiving.asks("SELECT max(value) FROM loom_series(DIR, 'sound')", "2.0")?;
    receiving.asks("SELECT count(*) FROM loom_losses(DIR)", "0")?;
    // The same in JSON, where the good records are stored.
    let json = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"json \xC3"}}]}]}]}"#;
    let json: Vec<u8> = json.to_vec();
    let at = json
        .windows(4)
        .position(|part| part == b"\\xC3")
        .unwrap_or_default();
    let json = [&json[..at], b"\xC3", &json[at + 4..]].concat();
    let reply = receiving.send(
        "POST",
        "/v1/logs",
        "content-type: application/json\r\n",
        &json,
    )?;
    ensure!(reply.status == 200, "{reply:?}");
    ensure!(
        String::from_utf8_lossy(&reply.body).contains("not UTF-8"),
        "{reply:?}"
    );
    receiving.asks(
        "SELECT count(*) FROM loom_scan(DIR, 'logs') WHERE body = 'json \u{FFFD}'",
        "1",
    )?;
    receiving.stop()
}

#[test]
fn media_types_and_encodings_are_taken_in_any_case() -> Result<()> {
    let receiving = Receiving::new("")?;
    let good = packed(&logs(vec![said("good")]))?;
    for encoding in ["gzip", "GZIP", "Gzip"] {
        let headers =
            format!("content-type: Application/X-Protobuf\r\ncontent-encoding: {encoding}\r\n");
        let reply = receiving.send("POST", "/v1/logs", &headers, &good)?;
        ensure!(reply.refused()?.0 == 0, "{reply:?}");
    }
    let headers = "content-type: APPLICATION/JSON\r\n";
    ensure!(receiving.send("POST", "/v1/logs", headers, b"{}")?.status == 200);
    receiving.asks("SELECT count(*) FROM loom_scan(DIR, 'logs')", "3")?;
    receiving.stop()
}

#[test]
fn connections_that_find_no_place_are_counted_and_named() -> Result<()> {
    let receiving = Receiving::new("")?;
    let connected = || TcpStream::connect(&receiving.address);
    let open: Vec<TcpStream> = (0..300).map(|_| connected()).collect::<Result<_, _>>()?;
    let counted = "SELECT coalesce(sum(records), 0) FROM loom_losses(DIR) WHERE source IS NULL AND reason = 'overload'";
    receiving.asks_until(counted, "44")?;
    let log = std::fs::read_to_string(receiving.dir().with_extension("log"))?;
    says(&log, "connections for OTLP closed at once: 256 are open");
    drop(open);
    let good = logs(vec![said("good")]);
    ensure!(wait_until(|| Ok(receiving
        .post("/v1/logs", &good)
        .is_ok_and(|reply| reply.status == 200)))?);
    receiving.stop()
}

// case Metrics: records and points out of bounds, series that are always new
#[test]
fn records_out_of_bounds_are_refused_alone_counted_and_named() -> Result<()> {
    let receiving = Receiving::new("")?;
    let year_ns = 366 * 86_400_000_000_000;
    let at = |time_unix_nano: u64, body: &str| LogRecord {
        time_unix_nano,
        ..said(body)
    };
    let mut short = said("short id");
    short.trace_id = vec![1; 15];
    let sent = vec![
        said("good"),
        at(now_ns() + year_ns, "of next year"),
        at(now_ns() - year_ns, "of last year"),
        at(u64::MAX, "of no year"),
        short,
        said(&"long ".repeat(20_000)),
        said(&"longer ".repeat(100_000)),
        said("good too"),
    ];
    let (refused, why) = receiving.post("/v1/logs", &logs(sent))?.refused()?;
    ensure!(refused == 6, "{refused} {why}");
    for word in [
        "3: ",
        "set the sender's clock",
        "trace_id",
        "more than",
        "256 KiB",
    ] {
        ensure!(why.contains(word), "{word}: {why}");
    }
    receiving.asks(
        "SELECT string_agg(body ORDER BY ts) FROM loom_scan(DIR, 'logs')",
        "good,good too",
    )?;
    let no_id = Span {
        start_time_unix_nano: now_ns(),
        ..Span::default()
    };
    receiving.refuses("/v1/traces", &spans(vec![no_id]), 1, "trace_id")?;
    let lost = "SELECT string_agg(source || '=' || n, ' ' ORDER BY source) FROM (SELECT source, sum(records) n FROM loom_losses(DIR) GROUP BY source)";
    receiving.asks_until(lost, "logs=6 spans=1")?;
    let counts = ingestd(["status".as_ref(), receiving.dir().as_os_str()])?;
    ensure!(counts.contains("logs"), "{counts}");
    receiving.stop()
}

// case Metrics: requests that are cut, nested deep, packed bombs, too long, of another format or path
#[test]
fn a_small_request_that_unfolds_to_much_is_cut_where_its_room_ends() -> Result<()> {
    let receiving = Receiving::new("body_max = '1MiB'")?;
    // Each record repeats its resource, so each 2 bytes that are sent become some hundred.
    let records = vec![LogRecord::default(); 200_000];
    let (refused, why) = receiving.post("/v1/logs", &logs(records))?.refused()?;
    ensure!(
        refused > 0 && why.contains("4 times body_max"),
        "{refused} {why}"
    );
    let kept: i64 = receiving
        .ask("SELECT count(*) FROM loom_scan(DIR, 'logs')")?
        .parse()?;
    ensure!(
        kept + refused == 200_000 && kept > 10_000,
        "{kept} {refused}"
    );
    receiving.stop()
}

// case Metrics: a log that takes nothing, a thousand connections
#[test]
fn a_log_that_takes_nothing_takes_nothing_of_a_request_and_says_when_to_come_again() -> Result<()> {
    let receiving = Receiving::new("")?;
    let file = receiving.dir().with_extension("toml");
    let open = std::fs::read_to_string(&file)?;
    let full = format!("{open}[retention]\nmin_free = '99%'\non_full = 'refuse'\n");
    let body = logs(vec![said("kept by its sender")]);
    let points = gauges(std::iter::once("x".to_owned()));
    for (config, status) in [(full, 503), (open, 200)] {
        std::fs::write(&file, config)?;
        receiving.daemon.signal(rustix::process::Signal::HUP)?;
        let is_so = || Ok(receiving.post("/v1/metrics", &points)?.status == status);
        ensure!(wait_until(is_so)?);
        let reply = receiving.post("/v1/logs", &body)?;
        ensure!(reply.status == status, "{reply:?}");
        let is_asked = reply.head.contains("retry-after: 1");
        ensure!(is_asked == (status == 503), "{reply:?}");
    }
    receiving.asks("SELECT count(*) FROM loom_scan(DIR, 'logs')", "1")?;
    let lost = "SELECT count(*) FROM loom_losses(DIR) WHERE source = 'logs'";
    receiving.asks(lost, "0")?;
    receiving.stop()
}

// case Metrics: [otlp]
#[test]
fn a_sender_uses_tls_where_it_is_configured() -> Result<()> {
    if !machine::has("TLS", &["openssl", "curl"])? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    certificate(place.path());
    let here = place.path().display();
    let tls = format!("tls = {{ cert = '{here}/cert.pem', key = '{here}/key.pem' }}");
    let receiving = Receiving::new(&tls)?;
    std::fs::write(place.path().join("body"), logs(vec![said("in secret")]))?;
    let post = |options: &str| -> Result<String> {
        let said = Command::new("curl")
            .args("-s -m 20 -o answer -w %{http_code} --data-binary @body -H content-type:application/x-protobuf".split(' '))
            .args(options.split(' '))
            .current_dir(place.path())
            .output()?;
        Ok(String::from_utf8(said.stdout)?)
    };
    let at = format!("{}/v1/logs", receiving.address);
    for (options, status) in [
        (format!("--cacert cert.pem https://{at}"), "200"),
        (format!("--cacert cert.pem --http1.1 https://{at}"), "200"),
        (format!("https://{at}"), "000"),
        (format!("http://{at}"), "000"),
    ] {
        ensure!(post(&options)? == status, "{options}");
    }
    receiving.asks("SELECT count(*) FROM loom_scan(DIR, 'logs')", "2")?;
    receiving.stop()
}

// case Metrics: a log that takes nothing, a thousand connections
#[test]
fn a_thousand_connections_that_say_nothing_end_and_senders_are_served_again() -> Result<()> {
    let receiving = Receiving::new("")?;
    let mut silent = Vec::new();
    for _ in 0..1000 {
        let mut stream = TcpStream::connect(&receiving.address)?;
        // Half a request head.
        let _ = stream.write_all(b"POST /v1/logs HTTP/1.1\r\n");
        silent.push(stream);
    }
    drop(silent);
    let body = logs(vec![said("served")]);
    let is_served = || {
        Ok(receiving
            .post("/v1/logs", &body)
            .is_ok_and(|reply| reply.status == 200))
    };
    ensure!(wait_until(is_served)?);
    receiving.asks(
        "SELECT any_value(body) FROM loom_scan(DIR, 'logs')",
        "served",
    )?;
    receiving.stop()
}

// case Metrics: [otlp]
#[test]
fn a_token_is_needed_where_one_is_configured() -> Result<()> {
    let place = tempfile::tempdir()?;
    let token = place.path().join("token");
    std::fs::write(&token, "secret\n")?;
    let more = format!("bearer_file = '{}'", token.display());
    let receiving = Receiving::new(&more)?;
    let body = logs(vec![said("known")]);
    for (header, status) in [
        ("", 401),
        ("authorization: Bearer guess\r\n", 401),
        ("authorization: Bearer secre\r\n", 401),
        ("authorization: Bearer secret\r\n", 200),
    ] {
        let reply = receiving.send("POST", "/v1/logs", &format!("{PROTOBUF}{header}"), &body)?;
        ensure!(reply.status == status, "{header}: {reply:?}");
    }
    receiving.asks("SELECT count(*) FROM loom_scan(DIR, 'logs')", "1")?;
    receiving.stop()
}
