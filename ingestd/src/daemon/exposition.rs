//! A daemon's status as Prometheus reads it: the text format, version 0.0.4. Counters count since the daemon started.

use super::status::{DaemonStatus, SourceStatus};

/// All metrics.
pub(super) fn render(status: &DaemonStatus) -> String {
    let mut page = Page(String::new());
    let now = status;
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let is_troubled = f64::from(u8::from(now.trouble.is_some()));
    page.whole(
        "uptime_seconds",
        "Time since the daemon started.",
        seconds(now.uptime_ns),
    );
    page.whole(
        "connections",
        "Clients that are connected.",
        now.connections as f64,
    );
    let help = "Clients that are held back because the log is full.";
    page.whole("waiting_connections", help, now.waiting_connections as f64);
    page.whole("rings", "Rings that clients push into.", now.rings as f64);
    page.whole("ring_bytes", "Memory of the rings.", now.ring_bytes as f64);
    let help = "Records that clients dropped because their ring was full.";
    page.whole("ring_dropped_records_total", help, now.ring_dropped as f64);
    page.whole(
        "log_end_bytes",
        "End of the record log as published.",
        now.records_end as f64,
    );
    let help = "Address below which the record log is on stable storage.";
    page.whole("log_durable_bytes", help, now.records_durable as f64);
    let help = "Bytes on the disk of the segments of all logs.";
    page.whole("segment_bytes", help, now.segment_bytes as f64);
    let help = "Segments of the record log that are columns.";
    page.whole("column_segments", help, now.column_segments as f64);
    let help = "Bytes on the disk of the segments that are columns.";
    page.whole("column_bytes", help, now.column_bytes as f64);
    let help = "Bytes that the segments that are columns took before.";
    page.whole("column_rows_bytes", help, now.column_rows_bytes as f64);
    let help = "Segments of the record log that retention removed.";
    page.whole("evicted_segments_total", help, now.evicted_segments as f64);
    page.whole(
        "stalls_total",
        "How often appending waited for the disk.",
        now.log_stalls as f64,
    );
    let help = "How long appending waited for the disk.";
    page.whole("stall_seconds_total", help, seconds(now.log_stall_ns));
    let help = "Records that were refused or dropped and are not in loom_losses yet.";
    page.whole("pending_losses", help, now.pending_losses as f64);
    let help = "1 while something is wrong with the log, else 0.";
    page.whole("trouble", help, is_troubled);
    let sources = &now.sources;
    let help = "Records that reached the daemon.";
    page.by_source("received_records_total", help, sources, |source| {
        source.received
    });
    let help = "Records that are in the log.";
    page.by_source("stored_records_total", help, sources, |source| {
        source.stored
    });
    let help = "Records that were refused.";
    page.by_source("refused_records_total", help, sources, |source| {
        source.refused
    });
    let help = "Records that were dropped because the log was full.";
    page.by_source("dropped_records_total", help, sources, |source| {
        source.dropped
    });
    let help = "Payload bytes that are in the log.";
    page.by_source("stored_payload_bytes_total", help, sources, |source| {
        source.bytes
    });
    page.0
}

struct Page(String);

impl Page {
    /// A number of the whole daemon.
    fn whole(&mut self, name: &str, help: &str, value: f64) {
        self.describe(name, help);
        self.0 += &format!("loom_{name} {value}\n");
    }

    /// A counter of each source.
    fn by_source(
        &mut self,
        name: &str,
        help: &str,
        sources: &[SourceStatus],
        value: impl Fn(&SourceStatus) -> u64,
    ) {
        self.describe(name, help);
        for source in sources {
            let (label, value) = (escaped(&source.name), value(source));
            self.0 += &format!("loom_{name}{{source=\"{label}\"}} {value}\n");
        }
    }

    fn describe(&mut self, name: &str, help: &str) {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        self.0 += &format!("# HELP loom_{name} {help}\n# TYPE loom_{name} {kind}\n");
    }
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
