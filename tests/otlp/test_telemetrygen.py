"""OpenTelemetry's `telemetrygen` sends to a real daemon, directly and through a Collector: counts are equal, and attributes are whole.

INGESTD names the daemon's program, and OTLP_SENDERS the folder with the programs that `go` builds here.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from receiver import Receiver, running

TIMEOUT_SECONDS = 120
WORKERS = 3
# For each worker.
TRACES = LOGS = POINTS = 100
CHILDREN = 2
# For one series.
IN_A_ROW = 1000
# The default of `telemetrygen`.
BATCH = 100

RESOURCE = {"service.namespace": "shops", "service.instance.id": "till-1", "zones": ["north", "south"], "replicas": 3, "is_new": False}
ATTRIBUTES = {"http.route": "/pay", "n": 7, "is_paid": True, "tags": ["a", "b, c"], "counts": [1, 2], "note": "é = ü, [x]"}
PROMOTED = "http.route"
LABELS = {
    "job": "shops/shop",
    "instance": "till-1",
    "http_route": "/pay",
    "n": "7",
    "is_paid": "true",
    "tags": '["a","b, c"]',
    "counts": "[1,2]",
    "note": "é = ü, [x]",
}
# The attributes of the resource besides its job and its instance.
TARGET_INFO = {
    "__name__": "target_info",
    "job": LABELS["job"],
    "instance": LABELS["instance"],
    "zones": '["north","south"]',
    "replicas": "3",
    "is_new": "false",
}
# Each point of `telemetrygen` has ten samples, and ten points in a row have this sum.
HISTOGRAM_COUNT = 10
HISTOGRAM_SUM_OF_TEN = 46_965
HISTOGRAM_BUCKETS = 16

DIRECT = {"grpc": [], "http": ["--otlp-http"]}
EXPORTERS = {
    "collector-grpc": lambda address: {"otlp_grpc": {"endpoint": address, "tls": {"insecure": True}}},
    "collector-http": lambda address: {"otlp_http": {"endpoint": f"http://{address}"}},
    "collector-json": lambda address: {"otlp_http": {"endpoint": f"http://{address}", "encoding": "json"}},
}
REFUSED = [
    ("Sum", "delta", "its values are deltas"),
    ("Histogram", "delta", "its values are deltas"),
    ("ExponentialHistogram", "cumulative", "it is an exponential histogram"),
]
every_way = pytest.mark.parametrize("way", [*DIRECT, *EXPORTERS])


def send(way: str, receiver: Receiver, place: Path, signal: str, *options: str, batch: int = BATCH) -> str:
    """Send until everything is answered, and return the sender's report of the answers."""
    if way in DIRECT:
        return generate(receiver.address, signal, *DIRECT[way], *options)
    exporter = EXPORTERS[way](receiver.address)
    pipeline = {"receivers": ["otlp"], "processors": ["batch"], "exporters": [*exporter]}
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "processors": {"batch": {"send_batch_size": batch, "send_batch_max_size": batch}},
        "exporters": exporter,
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"sampling": {"enabled": False}}},
            "pipelines": dict.fromkeys(["traces", "logs", "metrics"], pipeline),
        },
    }
    file, log = place / "collector.yaml", place / "collector.log"
    # JSON is valid YAML.
    file.write_text(json.dumps(config))
    with running([program("collector"), file], log, r'Starting GRPC server.*"endpoint": "([^"]+)"') as address:
        assert refused(generate(address, signal, *options)) == 0
    return log.read_text()


def program(name: str) -> Path:
    return Path(os.environ["OTLP_SENDERS"]) / name


def generate(address: str, signal: str, *options: str) -> str:
    """Run `telemetrygen`, and return its report."""
    given = ["--service", "shop", "--batch-size", str(BATCH), "--rate", "0", "--workers", str(WORKERS)]
    given += [f"--otlp-attributes={name}={json.dumps(value, ensure_ascii=False)}" for name, value in RESOURCE.items()]
    given += [f"--telemetry-attributes={name}={json.dumps(value, ensure_ascii=False)}" for name, value in ATTRIBUTES.items()]
    command = [program("telemetrygen"), signal, "--otlp-insecure", "--otlp-endpoint", address, *given, *options]
    return subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS, stderr=subprocess.PIPE, text=True).stderr


def refused(report: str) -> int:
    """Return the number of refused records in a report of `telemetrygen` or of the Collector."""
    counts = re.findall(r"\((\d+) [a-z ]+ rejected\)", report) + re.findall(r'"dropped_[a-z_]+": (\d+)', report)
    return sum(int(count) for count in counts)


def distinct(receiver: Receiver, source: str, *columns: str) -> list[tuple]:
    """Return each combination of the columns, the promoted attribute, and the other attributes."""
    rows = receiver.ask_all(f"SELECT DISTINCT {', '.join(columns)}, \"{PROMOTED}\", attributes, resource FROM loom_scan(DIR, '{source}')")
    return sorted({(*row[:-2], *(whole(json.loads(text)) for text in row[-2:])) for row in rows})


def whole(attributes: dict) -> str:
    """Write attributes in a fixed order."""
    return json.dumps(attributes, sort_keys=True)


def kept(own: dict[str, str]) -> tuple[str, str, str]:
    """Return the last three columns of `distinct`. `own` are the attributes that `telemetrygen` adds itself."""
    others = {name: value for name, value in ATTRIBUTES.items() if name != PROMOTED}
    return ATTRIBUTES[PROMOTED], whole({**others, **own}), whole({"service.name": "shop", **RESOURCE})


@every_way
def test_spans_are_whole_and_joined(receiver: Receiver, tmp_path: Path, way: str) -> None:
    options = ["--traces", str(TRACES), "--child-spans", str(CHILDREN), "--status-code", "Error", "--span-links", "1"]
    assert refused(send(way, receiver, tmp_path, "traces", *options)) == 0
    roots, children = WORKERS * TRACES, WORKERS * TRACES * CHILDREN
    counts = "SELECT count(*), count(DISTINCT span_id), count(DISTINCT trace_id), count(parent_span_id) FROM loom_scan(DIR, 'spans')"
    assert receiver.ask(counts) == (roots + children, roots + children, roots, children)
    # A child takes this long, and one follows the other.
    child_ns = 123_000
    joined = (
        "SELECT count(*), min(c.duration_ns), max(c.duration_ns), min(p.duration_ns), max(p.duration_ns) FROM loom_scan(DIR, 'spans') c "
        "JOIN loom_scan(DIR, 'spans') p ON (c.trace_id, c.parent_span_id) = (p.trace_id, p.span_id) WHERE p.parent_span_id IS NULL"
    )
    assert receiver.ask(joined) == (children, child_ns, child_ns, CHILDREN * child_ns, CHILDREN * child_ns)
    # Only the first span of a worker has no other span to link to.
    linked = (
        "SELECT count(*) FROM (SELECT unnest(CAST(links AS JSON[])) AS link FROM loom_scan(DIR, 'spans')) "
        "JOIN loom_scan(DIR, 'spans') ON trace_id = link->>'trace_id' AND span_id = link->>'span_id'"
    )
    assert receiver.ask(linked) == (roots + children - WORKERS,)
    of_root = kept({"network.peer.address": "1.2.3.4", "peer.service": "telemetrygen-server"})
    of_child = kept({"network.peer.address": "1.2.3.4", "peer.service": "telemetrygen-client"})
    expected = [("lets-go", "client", "error", "shop", *of_root)]
    expected += [(f"okey-dokey-{n}", "server", "error", "shop", *of_child) for n in range(CHILDREN)]
    assert distinct(receiver, "spans", "name", "kind", "status", "service") == expected
    assert receiver.losses() == 0


@every_way
def test_logs_are_whole_and_join_their_span(receiver: Receiver, tmp_path: Path, way: str) -> None:
    assert refused(send(way, receiver, tmp_path, "traces", "--workers", "1", "--traces", "1")) == 0
    trace, span = receiver.ask("SELECT trace_id, span_id FROM loom_scan(DIR, 'spans') WHERE parent_span_id IS NULL")
    options = ["--logs", str(LOGS), "--trace-id", trace, "--span-id", span]
    options += ["--body", "not paid", "--severity-number", "18", "--severity-text", "Error"]
    assert refused(send(way, receiver, tmp_path, "logs", *options)) == 0
    assert receiver.ask("SELECT count(*) FROM loom_scan(DIR, 'logs')") == (WORKERS * LOGS,)
    joined = "SELECT count(*) FROM loom_scan(DIR, 'logs') l JOIN loom_scan(DIR, 'spans') s USING (trace_id, span_id) WHERE l.ts >= s.ts"
    assert receiver.ask(joined) == (WORKERS * LOGS,)
    expected = [("ERROR2", "Error", "not paid", "shop", *kept({"app": "server"}))]
    assert distinct(receiver, "logs", "severity", "severity_text", "body", "service") == expected
    assert receiver.losses() == 0


def points(metric: str, kind: str, *options: str) -> list[str]:
    """Return options for data points that each have a series of their own: the label `timebox` numbers them."""
    unique = ["--unique-timeseries", "--unique-timeseries-duration", "1h"]
    return ["--otlp-metric-name", metric, "--metric-type", kind, "--metrics", str(POINTS), *unique, *options]


def values(receiver: Receiver, series: str) -> list[float]:
    """Check the labels of a metric, and return its values, one of each point."""
    rows = receiver.ask_all(f"SELECT labels, value FROM loom_series(DIR, '{series}')")
    for labels, _ in rows:
        assert {name: text for name, text in labels.items() if name not in ("timebox", "le")} == {"__name__": series, **LABELS}
    assert {int(labels["timebox"]) for labels, _ in rows} == set(range(1, WORKERS * POINTS + 1))
    return [value for _, value in rows]


def check_resource(receiver: Receiver) -> None:
    """Check that the resource is whole, and stored once for each time."""
    rows = receiver.ask_all("SELECT labels, value FROM loom_series(DIR, 'target_info')")
    assert rows
    assert all(row == (TARGET_INFO, 1) for row in rows)
    (times,) = receiver.ask("SELECT count(DISTINCT ts) FROM loom_series(DIR, 'target_info')")
    assert times == len(rows)


@every_way
@pytest.mark.parametrize(("kind", "series"), [("Gauge", "sold_items"), ("Sum", "sold_items_total")])
def test_points_are_whole(receiver: Receiver, tmp_path: Path, way: str, kind: str, series: str) -> None:
    assert refused(send(way, receiver, tmp_path, "metrics", *points("sold.items", kind))) == 0
    assert sorted(values(receiver, series)) == sorted([*range(POINTS)] * WORKERS)
    check_resource(receiver)
    assert receiver.losses() == 0


@every_way
def test_histograms_are_whole(receiver: Receiver, tmp_path: Path, way: str) -> None:
    assert refused(send(way, receiver, tmp_path, "metrics", *points("price", "Histogram"))) == 0
    assert values(receiver, "price_count") == [HISTOGRAM_COUNT] * WORKERS * POINTS
    assert sum(values(receiver, "price_sum")) == HISTOGRAM_SUM_OF_TEN * WORKERS * POINTS / 10
    assert len(values(receiver, "price_bucket")) == HISTOGRAM_BUCKETS * WORKERS * POINTS
    check_resource(receiver)
    cumulative = (
        "SELECT DISTINCT len(counts), list_sort(counts) = counts, counts[-1] "
        "FROM (SELECT list(value ORDER BY CAST(labels['le'] AS DOUBLE)) AS counts "
        "FROM loom_series(DIR, 'price_bucket') GROUP BY labels['timebox'])"
    )
    assert receiver.ask(cumulative) == (HISTOGRAM_BUCKETS, True, HISTOGRAM_COUNT)
    assert receiver.losses() == 0


@every_way
def test_points_of_one_series_are_stored_or_counted_as_refused(receiver: Receiver, tmp_path: Path, way: str) -> None:
    options = ["--otlp-metric-name", "sold", "--metric-type", "Sum", "--metrics", str(POINTS), "--rate", "200", "--workers", "1"]
    lost = refused(send(way, receiver, tmp_path, "metrics", *options))
    stored, greatest = receiver.ask("SELECT count(DISTINCT value), max(value) FROM loom_series(DIR, 'sold_total')")
    assert stored + lost == POINTS
    # Two points rarely fall into one millisecond; then the later one is refused.
    assert lost < POINTS / 10
    assert greatest >= POINTS - 1 - lost
    assert receiver.losses() == lost


@pytest.mark.parametrize("way", EXPORTERS)
def test_points_that_consumers_of_a_queue_send_in_any_order_are_stored(receiver: Receiver, tmp_path: Path, way: str) -> None:
    # A request has one point, and ten consumers send those of one series.
    options = ["--otlp-metric-name", "sold", "--metric-type", "Sum", "--metrics", str(IN_A_ROW)]
    options += ["--rate", "500", "--workers", "1", "--batch-size", "1"]
    report = send(way, receiver, tmp_path, "metrics", *options, batch=1)
    lost = refused(report)
    stored, greatest = receiver.ask("SELECT count(DISTINCT value), max(value) FROM loom_series(DIR, 'sold_total')")
    assert stored + lost == IN_A_ROW
    assert "out_of_order" not in report
    assert lost < IN_A_ROW / 10
    assert greatest >= IN_A_ROW - 1 - lost
    assert receiver.losses() == lost


@every_way
def test_deltas_and_exponential_histograms_are_refused_and_counted(receiver: Receiver, tmp_path: Path, way: str) -> None:
    each = WORKERS * POINTS
    assert refused(send(way, receiver, tmp_path, "metrics", *points("sold", "Gauge"))) == 0
    for count, (kind, temporality, why) in enumerate(REFUSED, 1):
        options = points("refused", kind, "--aggregation-temporality", temporality)
        report = send(way, receiver, tmp_path, "metrics", *options)
        assert refused(report) == each
        assert why in report
        assert receiver.losses() == count * each
    assert len(values(receiver, "sold")) == each
    assert receiver.ask("SELECT count(*) FROM loom_series(DIR, NULL) WHERE labels['__name__'] <> 'target_info'") == (each,)
