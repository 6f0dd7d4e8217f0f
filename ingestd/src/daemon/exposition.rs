//! A daemon's status as Prometheus reads it: the text format, version 0.0.4. Counters count since the daemon started.

use super::status::{DaemonStatus, SourceStatus};

pub(super) fn render(now: &DaemonStatus) -> String {
    let mut page = String::new();
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let mut whole = |name: &str, value: f64, help: &str| {
        page += &format!("{}loom_{name} {value}\n", head(name, help));
    };
    let since = "Time since the daemon started.";
    whole("uptime_seconds", seconds(now.uptime_ns), since);
    let help = "Clients that are connected.";
    whole("connections", now.connections as f64, help);
    let help = "Clients that are held back because the log is full.";
    whole("waiting_connections", now.waiting_connections as f64, help);
    whole("rings", now.rings as f64, "Rings that clients push into.");
    whole("ring_bytes", now.ring_bytes as f64, "Memory of the rings.");
    let help = "Records that clients dropped because their ring was full.";
    whole("ring_dropped_records_total", now.ring_dropped as f64, help);
    let help = "End of the record log as published.";
    whole("log_end_bytes", now.records_end as f64, help);
    let help = "Address below which the record log is on stable storage.";
    whole("log_durable_bytes", now.records_durable as f64, help);
    let help = "Bytes on the disk of the segments of all logs.";
    whole("segment_bytes", now.segment_bytes as f64, help);
    let help = "Bytes on the disk of the segments of the record log.";
    whole("records_disk_bytes", now.records_disk_bytes as f64, help);
    let help = "Bytes of the record log in the units of its segments.";
    whole(
        "records_encoded_bytes",
        now.records_encoded_bytes as f64,
        help,
    );
    let help = "Segments of the record log that retention removed.";
    whole("evicted_segments_total", now.evicted_segments as f64, help);
    let help = "How often appending waited for the disk.";
    whole("stalls_total", now.log_stalls as f64, help);
    let help = "How long appending waited for the disk.";
    whole("stall_seconds_total", seconds(now.log_stall_ns), help);
    let help = "Records that were refused or dropped and are not in loom_losses yet.";
    whole("pending_losses", now.pending_losses as f64, help);
    let help = "1 while something is wrong with the log, else 0.";
    whole("trouble", f64::from(now.trouble.is_some()), help);
    let mut by_source = |name: &str, value: fn(&SourceStatus) -> u64, help: &str| {
        page += &head(name, help);
        for source in &now.sources {
            let (label, value) = (escaped(&source.name), value(source));
            page += &format!("loom_{name}{{source=\"{label}\"}} {value}\n");
        }
    };
    let help = "Records that reached the daemon.";
    by_source("received_records_total", |source| source.received, help);
    let help = "Records that are in the log.";
    by_source("stored_records_total", |source| source.stored, help);
    let help = "Records that were refused.";
    by_source("refused_records_total", |source| source.refused, help);
    let help = "Records that were dropped because the log was full.";
    by_source("dropped_records_total", |source| source.dropped, help);
    let help = "Payload bytes that are in the log.";
    by_source("stored_payload_bytes_total", |source| source.bytes, help);
    page
}

fn head(name: &str, help: &str) -> String {
    let kind = match name.ends_with("_total") {
        true => "counter",
        false => "gauge",
    };
    format!("# HELP loom_{name} {help}\n# TYPE loom_{name} {kind}\n")
}

/// A label's value: backslash, quote and newline get a backslash before them.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_counters_and_its_name_is_escaped() {
        let status = DaemonStatus {
            log_stall_ns: 1_500_000_000,
            sources: vec![SourceStatus {
                name: "a\"b\\c".to_owned(),
                received: 7,
                stored: u64::from(u32::MAX) * 16,
                ..SourceStatus::default()
            }],
            ..DaemonStatus::default()
        };
        let text = render(&status);
        assert!(text.contains("\nloom_stall_seconds_total 1.5\n"), "{text}");
        assert!(
            text.contains("loom_received_records_total{source=\"a\\\"b\\\\c\"} 7\n"),
            "{text}"
        );
        assert!(text.contains("} 68719476720\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}
