//! The signals, and their names in OTLP. Each request has one signal; routes, answers and the reader of JSON use the names.

/// The content of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Signal {
    Logs,
    Spans,
    Metrics,
}

pub(crate) struct Names {
    /// The paths of requests over HTTP and over gRPC.
    pub(crate) path: &'static str,
    pub(crate) method: &'static str,
    /// The message of a request, without the beginning of its package.
    pub(crate) request: &'static str,
    /// The member of an answer in JSON that counts refused records.
    pub(crate) rejected: &'static str,
}

impl Signal {
    pub(crate) const ALL: [Signal; 3] = [Signal::Logs, Signal::Spans, Signal::Metrics];

    pub(crate) fn names(self) -> Names {
        match self {
            Signal::Logs => Names {
                path: "/v1/logs",
                method: "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
                request: "collector.logs.v1.ExportLogsServiceRequest",
                rejected: "rejectedLogRecords",
            },
            Signal::Spans => Names {
                path: "/v1/traces",
                method: "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                request: "collector.trace.v1.ExportTraceServiceRequest",
                rejected: "rejectedSpans",
            },
            Signal::Metrics => Names {
                path: "/v1/metrics",
                method: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
                request: "collector.metrics.v1.ExportMetricsServiceRequest",
                rejected: "rejectedDataPoints",
            },
        }
    }

    /// The signal of a path.
    pub(crate) fn at(path: &str) -> Option<Signal> {
        Signal::ALL.into_iter().find(|signal| {
            let names = signal.names();
            [names.path, names.method].contains(&path)
        })
    }
}
