"""A sender of OTLP over HTTP in JSON: spans, logs and metrics.

A request whose answer was not seen may be stored, a part of it too. Spans and logs of such a request are not sent again, so each record of
the log is there once. Its metrics are sent again until they have an answer, because a data point that comes again is stored once.
"""

import http.client
import itertools
import json
import socket
import time

from load import Failed, Load, Pace, compare_losses
from stored import quoted

RECORDS = 100
# Each request of spans or logs has this many further records that are refused, each of metrics this many points.
REFUSED = 1
RATE = 4000
SERIES = 10
RESOURCE = {"attributes": [{"key": "service.name", "value": {"stringValue": "soak"}},
                           {"key": "service.instance.id", "value": {"stringValue": "one"}}]}
METRICS = "metrics/soak/one"
DAY_NS = 86_400_000_000_000


def attribute(key, number):
    return {"key": key, "value": {"intValue": str(number)}}


def span(seq, now):
    return {"traceId": f"{seq + 1:032x}", "spanId": f"{seq + 1:016x}", "name": "soak", "kind": 2, "startTimeUnixNano": str(now),
            "endTimeUnixNano": str(now + seq % 1000), "attributes": [attribute("seq", seq)]}


def log(seq, now):
    return {"timeUnixNano": str(now), "severityNumber": 9, "body": {"stringValue": f"record {seq}"}, "attributes": [attribute("seq", seq)]}


def spans(first):
    now = time.time_ns()
    records = [span(first + n, now + n) for n in range(RECORDS)] + [{**span(first, now), "traceId": "ab"}]
    return {"resourceSpans": [{"resource": RESOURCE, "scopeSpans": [{"spans": records}]}]}


def logs(first):
    now = time.time_ns()
    records = [log(first + n, now + n) for n in range(RECORDS)] + [log(first, now + 2 * DAY_NS)]
    return {"resourceLogs": [{"resource": RESOURCE, "scopeLogs": [{"logRecords": records}]}]}


def metrics(number, at_ms):
    """A point of each series, and a delta, which is refused."""
    point = {"timeUnixNano": str(at_ms * 1_000_000), "asDouble": number}
    points = [{**point, "attributes": [attribute("k", k)]} for k in range(SERIES)]
    delta = {"name": "delta", "sum": {"aggregationTemporality": 1, "dataPoints": [point]}}
    return {"resourceMetrics": [{"resource": RESOURCE, "scopeMetrics": [{"metrics": [{"name": "soak", "gauge": {"dataPoints": points}}, delta]}]}]}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Sender(Load):
    """Sends one request after another, of spans, logs and metrics in turn."""

    def __init__(self, rate):
        super().__init__()
        self.port, self.connection = free_port(), None
        self.config = f'[otlp]\nlisten = ["127.0.0.1:{self.port}"]\npromote = [{{ name = "seq", type = "i64" }}]\n'
        self.pace = Pace(min(rate or RATE, RATE))
        self.seq, self.points, self.at_ms, self.retried = 0, 0, 0, 0
        self.begin()

    def sent(self):
        return self.seq

    def begin(self):
        # Requests with and without an answer: first numbers of spans and logs, and numbers of requests of metrics.
        self.answered = {"spans": set(), "logs": set(), "metrics": set()}
        self.unsure = {"spans": set(), "logs": set(), "metrics": set()}
        self.unsure_metrics = 0

    def work(self):
        while self.running.is_set():
            for kind, path, make in (("spans", "/v1/traces", spans), ("logs", "/v1/logs", logs)):
                first, self.seq = self.seq, self.seq + RECORDS
                answered = self.post(path, json.dumps(make(first)))
                (self.answered if answered else self.unsure)[kind].add(first)
                self.pace.passed(RECORDS)
            self.post_metrics()
        # The daemon closes a connection that is idle.
        self.close()

    def post_metrics(self):
        """Sends the next points until they have an answer."""
        self.points += 1
        self.at_ms = max(self.at_ms + 1, time.time_ns() // 1_000_000)
        body = json.dumps(metrics(self.points, self.at_ms))
        while not self.post("/v1/metrics", body):
            self.unsure["metrics"].add(self.points)
            self.unsure_metrics += 1
        self.answered["metrics"].add(self.points)
        self.pace.passed(SERIES)

    def post(self, path, body):
        """Sends a request until the daemon has taken it. False if the connection ended before the answer."""
        while True:
            try:
                if self.connection is None:
                    self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
                self.connection.request("POST", path, body, {"Content-Type": "application/json"})
                answer = self.connection.getresponse()
                said = answer.read()
            except (OSError, http.client.HTTPException):
                self.close()
                time.sleep(0.05)
                return False
            if answer.status == 200:
                partial = json.loads(said).get("partialSuccess", {})
                rejected = sum(int(number) for key, number in partial.items() if key.startswith("rejected"))
                if rejected != REFUSED:
                    raise Failed(f"{path}: {rejected} are rejected instead of {REFUSED}: {said}")
                return True
            if answer.status != 503:
                raise Failed(f"{path}: {answer.status} {said}")
            # Nothing of it is stored: the log has no room for now.
            self.retried += 1
            time.sleep(min(1, float(answer.headers.get("Retry-After", 1))))

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def check(self, stored, losses, round):
        for kind in ("spans", "logs"):
            reported, unsure = (len(of[kind]) * REFUSED for of in (self.answered, self.unsure))
            compare_losses(kind, sum(losses.pop(kind, {}).values()), reported, unsure * (RECORDS + REFUSED), round)
            found = [seq for (seq,) in stored.rows(kind, round.since, "seq")]
            self.compare(kind, found, self.answered[kind], self.unsure[kind], RECORDS)
        # A data point that is refused has no source.
        reported, unsure = (REFUSED * count for count in (len(self.answered["metrics"]), self.unsure_metrics))
        compare_losses(METRICS, sum(losses.pop(None, {}).values()), reported, unsure * (1 + SERIES), round)
        self.check_points(stored.rows(METRICS, round.since - 1, quoted(f'soak{{k="{k}"}}' for k in range(SERIES))))

    def compare(self, kind, found, answered, unsure, each):
        """Checks that answered records are stored once, and that the others have no answer."""
        (answered, unsure) = (set(itertools.chain.from_iterable(range(first, first + each) for first in of)) for of in (answered, unsure))
        if len(found) != len(set(found)):
            raise Failed(f"OTLP {kind}: {len(found)} records are stored, {len(set(found))} different ones")
        if missing := answered - set(found):
            raise Failed(f"OTLP {kind}: {len(missing)} of {len(answered)} answered records are missing, such as {sorted(missing)[:5]}")
        if more := set(found) - answered - unsure:
            raise Failed(f"OTLP {kind}: {len(more)} records of no request of this round are stored, such as {sorted(more)[:5]}")
        if not answered:
            raise Failed(f"OTLP {kind}: no request had an answer in this round")

    def check_points(self, rows):
        first = min(self.answered["metrics"], default=0)
        for k, column in enumerate(zip(*rows, strict=True)):
            found = [int(value) for value in column if value is not None and value >= first]
            self.compare(f"metrics, series {k}", found, self.answered["metrics"], self.unsure["metrics"], 1)
        if not rows:
            raise Failed("OTLP metrics: no point is stored")
