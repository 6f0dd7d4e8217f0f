//! The configuration of `ingestd/docs/otlp.md` works as written, and its statement joins a slow span with its logs, its service's metrics and the packets around it.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::wait_until;
use loom_tests::machine;
use loom_tests::page::block;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{
    Metric, NumberDataPoint, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::{Pid, Signal, kill_process};

use crate::sender::{Receiving, logs, metrics, now_ns, spans, text};

/// Records three packets of UDP into a daemon with the command of the page, and returns the time at which they were sent.
fn record_packets(receiving: &Receiving) -> Result<u64> {
    let command = "`ingestd record telemetry.loom packets -i lo port ";
    let page = std::fs::read_to_string(machine::root().join("ingestd/docs/otlp.md"))?;
    ensure!(page.contains(command), "the page records no packets");
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let to = receiver.local_addr()?;
    let mut recording = Command::new(machine::ingestd()?)
        .arg("record")
        .arg(receiving.dir())
        // The port belongs to this test as a port of UDP; as one of TCP it may be anybody's.
        .args(["packets", "-i", "lo", "udp", "port", &to.port().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = until_it_records(&mut recording)?;
    for number in 0..3_u8 {
        receiver.send_to(&[number], to)?;
    }
    let sent = now_ns();
    let count = "SELECT count(*) FROM loom_scan(DIR, 'packet')";
    let is_stored = wait_until(|| Ok(receiving.ask(count).is_ok_and(|count| count == "3")))?;
    kill_process(Pid::from_child(&recording), Signal::INT)?;
    let output = recording.wait_with_output()?;
    ensure!(is_stored && output.status.success(), "{said} {output:?}");
    Ok(sent)
}

/// The output up to the line that says that everything is being recorded.
fn until_it_records(recording: &mut Child) -> Result<String> {
    let mut lines = BufReader::new(recording.stderr.take().context("no standard error")?);
    let mut said = String::new();
    while !said.contains("recording into") {
        ensure!(lines.read_line(&mut said)? > 0, "{said}");
    }
    // The rest of the output is not needed, but the pipe must not fill up.
    std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
    Ok(said)
}

// case Metrics: [otlp]
#[test]
fn the_configuration_of_the_page_receives_and_its_statement_joins() -> Result<()> {
    let page = "ingestd/docs/otlp.md";
    let config = &block(page, "", "toml")?;
    ensure!(
        config.lines().filter(|line| !line.is_empty()).count() <= 10,
        "{config}"
    );
    let listen = "listen = [\"127.0.0.1:4317\", \"127.0.0.1:4318\"]\n";
    let (before, promote) = config.split_once(listen).context("the usual ports")?;
    let before = before.strip_suffix("[otlp]\n").context("the table")?;
    let receiving = Receiving::new(&format!("{promote}\n{before}"))?;
    let now = record_packets(&receiving)?;
    let span = |duration_ns: u64| Span {
        trace_id: vec![duration_ns as u8; 16],
        span_id: vec![1; 8],
        name: format!("span of {duration_ns}"),
        start_time_unix_nano: now - 1_000_000,
        end_time_unix_nano: now - 1_000_000 + duration_ns,
        attributes: vec![text("http.route", "/pay")],
        ..Span::default()
    };
    let log = LogRecord {
        time_unix_nano: now,
        trace_id: vec![200; 16],
        body: text("", "slow").value,
        ..LogRecord::default()
    };
    let point = NumberDataPoint {
        time_unix_nano: now,
        value: Some(number_data_point::Value::AsDouble(1.5)),
        ..NumberDataPoint::default()
    };
    let cpu = Metric {
        name: "process.cpu.time".to_owned(),
        unit: "s".to_owned(),
        data: Some(metric::Data::Sum(Sum {
            data_points: vec![point],
            aggregation_temporality: 2,
            is_monotonic: true,
        })),
        ..Metric::default()
    };
    for (path, body) in [
        ("/v1/traces", spans(vec![span(100), span(200), span(50)])),
        ("/v1/logs", logs(vec![log])),
        ("/v1/metrics", metrics(vec![cpu])),
    ] {
        receiving.takes(path, &body)?;
    }
    let statement = block(page, "", "sql")?.replace("'telemetry.loom'", "DIR");
    let statement = statement.trim().trim_end_matches(';');
    receiving.asks(&format!(
            "SELECT string_agg(concat_ws('|', name, duration_ns, \"http.route\", body, cpu_seconds, packets)) FROM ({statement})"
        ), "span of 200|200|/pay|slow|1.5|3")?;
    receiving.stop()
}
