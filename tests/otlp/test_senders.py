"""OpenTelemetry's own SDKs send to a real daemon, over gRPC and HTTP, protobuf and JSON: counts are equal, and attributes are whole.

INGESTD names the daemon's program.
"""

import json
import logging
import shutil
import subprocess
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from receiver import Receiver

OPERATIONS = 700
ATTRIBUTES = {"http.route": "/pay", "n": 7, "ratio": 0.5, "is_new": True, "tags": ["a", "b"]}


def send_json(address: str) -> None:
    """Send the same from JavaScript, whose SDK sends JSON over HTTP."""
    sender = Path(__file__).parent / "node/send.mjs"
    node = shutil.which("node")
    assert node, "there is no Node.js"
    subprocess.run([node, sender, address, str(OPERATIONS), json.dumps(ATTRIBUTES)], check=True, timeout=120)


def exporters(protocol: str, address: str) -> tuple:
    if protocol == "grpc":
        return tuple(one(endpoint=f"http://{address}", insecure=True) for one in (GrpcSpans, GrpcLogs, GrpcMetrics))
    ways = ((HttpSpans, "traces"), (HttpLogs, "logs"), (HttpMetrics, "metrics"))
    return tuple(one(endpoint=f"http://{address}/v1/{signal}") for one, signal in ways)


def send(protocol: str, address: str) -> None:
    """Send spans, logs within them, a counter and a histogram, and wait until everything is answered."""
    spans, logs, metrics = exporters(protocol, address)
    resource = Resource.create({"service.name": "shop", "service.instance.id": protocol})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    meters = MeterProvider(resource=resource, metric_readers=[PeriodicExportingMetricReader(metrics)])
    loggers = LoggerProvider(resource=resource)
    loggers.add_log_record_processor(BatchLogRecordProcessor(logs))
    log = logging.getLogger(f"shop.{protocol}")
    log.addHandler(LoggingHandler(logger_provider=loggers))
    tracer, meter = tracers.get_tracer("lib", "1.0"), meters.get_meter("lib")
    requests, durations = meter.create_counter("requests"), meter.create_histogram("duration", unit="s")
    for n in range(OPERATIONS):
        with tracer.start_as_current_span("pay", attributes=ATTRIBUTES):
            log.warning("payment %d", n, extra={"user": "u"})
        requests.add(2, {"route": "/pay"})
        durations.record(n)
    for provider in (tracers, meters, loggers):
        provider.shutdown()


@pytest.mark.parametrize("protocol", ["grpc", "http", "json"])
def test_counts_are_equal_and_attributes_whole(receiver: Receiver, protocol: str) -> None:
    if protocol == "json":
        send_json(receiver.address)
    else:
        send(protocol, receiver.address)
    count, traces, routes, attributes = receiver.ask(
        "SELECT count(*), count(DISTINCT trace_id), count(\"http.route\"), any_value(attributes) FROM loom_scan(DIR, 'spans')"
    )
    assert (count, traces, routes) == (OPERATIONS, OPERATIONS, OPERATIONS)
    assert json.loads(attributes) == {name: value for name, value in ATTRIBUTES.items() if name != "http.route"}
    joined, bodies, severity, user = receiver.ask(
        "SELECT count(*), count(DISTINCT body), any_value(l.severity), any_value(l.attributes->>'user') "
        "FROM loom_scan(DIR, 'logs') l JOIN loom_scan(DIR, 'spans') s USING (trace_id, span_id) WHERE l.ts >= s.ts"
    )
    assert (joined, bodies, severity, user) == (OPERATIONS, OPERATIONS, "WARN", "u")
    assert receiver.ask("SELECT max(value) FROM loom_series(DIR, 'requests_total')") == (2.0 * OPERATIONS,)
    assert receiver.ask("SELECT max(value) FROM loom_series(DIR, 'duration_seconds_count')") == (OPERATIONS,)
    assert receiver.ask("SELECT max(value) FROM loom_series(DIR, 'duration_seconds_sum')") == (sum(range(OPERATIONS)),)
    language = "nodejs" if protocol == "json" else "python"
    assert receiver.ask("SELECT DISTINCT labels['telemetry_sdk_language'], value FROM loom_series(DIR, 'target_info')") == (language, 1)
    assert receiver.losses() == 0
