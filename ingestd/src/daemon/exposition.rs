//! A daemon's status as Prometheus reads it: the text format, version 0.0.4.

use super::status::{DaemonStatus, SourceStatus};

/// A counter of one source.
type OfSource = fn(&SourceStatus) -> u64;

/// All metrics. Counters count since the daemon started.
pub(super) fn render(status: &DaemonStatus) -> String {
    let mut text = String::new();
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let whole: [(&str, &str, &str, f64); 17] = [
        (
            "loom_uptime_seconds",
            "gauge",
            "Time since the daemon started.",
            seconds(status.uptime_ns),
        ),
        (
            "loom_connections",
            "gauge",
            "Clients that are connected.",
            status.connections as f64,
        ),
        (
            "loom_waiting_connections",
            "gauge",
            "Clients that are held back because the log is full.",
            status.waiting_connections as f64,
        ),
        (
            "loom_rings",
            "gauge",
            "Rings that clients push into.",
            status.rings as f64,
        ),
        (
            "loom_ring_bytes",
            "gauge",
            "Memory of the rings.",
            status.ring_bytes as f64,
        ),
        (
            "loom_ring_dropped_records_total",
            "counter",
            "Records that clients dropped because their ring was full.",
            status.ring_dropped as f64,
        ),
        (
            "loom_log_end_bytes",
            "gauge",
            "End of the record log as published.",
            status.records_end as f64,
        ),
        (
            "loom_log_durable_bytes",
            "gauge",
            "Address below which the record log is on stable storage.",
            status.records_durable as f64,
        ),
        (
            "loom_segment_bytes",
            "gauge",
            "Bytes on the disk of the segments of all logs.",
            status.segment_bytes as f64,
        ),
        (
            "loom_column_segments",
            "gauge",
            "Segments of the record log that are columns.",
            status.column_segments as f64,
        ),
        (
            "loom_column_bytes",
            "gauge",
            "Bytes on the disk of the segments that are columns.",
            status.column_bytes as f64,
        ),
        (
            "loom_column_rows_bytes",
            "gauge",
            "Bytes that the segments that are columns took before.",
            status.column_rows_bytes as f64,
        ),
        (
            "loom_evicted_segments_total",
            "counter",
            "Segments of the record log that retention removed.",
            status.evicted_segments as f64,
        ),
        (
            "loom_stalls_total",
            "counter",
            "How often appending waited for the disk.",
            status.log_stalls as f64,
        ),
        (
            "loom_stall_seconds_total",
            "counter",
            "How long appending waited for the disk.",
            seconds(status.log_stall_ns),
        ),
        (
            "loom_pending_losses",
            "gauge",
            "Records that were refused or dropped and are not in loom_losses yet.",
            status.pending_losses as f64,
        ),
        (
            "loom_trouble",
            "gauge",
            "1 while something is wrong with the log, else 0.",
            f64::from(u8::from(status.trouble.is_some())),
        ),
    ];
    for (name, kind, help, value) in whole {
        describe(&mut text, name, kind, help);
        text += &format!("{name} {value}\n");
    }
    let by_source: [(&str, &str, OfSource); 5] = [
        (
            "loom_received_records_total",
            "Records that reached the daemon.",
            |source| source.received,
        ),
        (
            "loom_stored_records_total",
            "Records that are in the log.",
            |source| source.stored,
        ),
        (
            "loom_refused_records_total",
            "Records that were refused.",
            |source| source.refused,
        ),
        (
            "loom_dropped_records_total",
            "Records that were dropped because the log was full.",
            |source| source.dropped,
        ),
        (
            "loom_stored_payload_bytes_total",
            "Payload bytes that are in the log.",
            |source| source.bytes,
        ),
    ];
    for (name, help, value) in by_source {
        describe(&mut text, name, "counter", help);
        for source in &status.sources {
            let (label, value) = (escaped(&source.name), value(source));
            text += &format!("{name}{{source=\"{label}\"}} {value}\n");
        }
    }
    text
}

fn describe(text: &mut String, name: &str, kind: &str, help: &str) {
    *text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// A label's value: backslash, quote and newline are written with a backslash.
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
