"""One system of the benchmark in a process of its own: a JSON request a line in, a JSON answer a line out.

`bench_peer.py SYSTEM PATH EXTENSION`. Requests: `start`; `query` with `sql`; `sums` with `sql`, whose columns `t` and `v` are a time and a
number, and `origin`, in seconds. Both may have `seconds`: then the question is repeated for that long, the median counts, and all answers
must be the same. `ingest` takes `records` payloads in turn from the file `payloads`. Wall and CPU seconds cover only the work itself: a
query ends when all rows are in memory, as Arrow, for `sums` as NumPy's arrays, which are made sooner from few rows, and from Prometheus as
numbers. The sums themselves are not counted.
"""

import http.client
import json
import math
import os
import pathlib
import resource
import sqlite3
import struct
import subprocess
import sys
import time
import urllib.parse
import warnings

import numpy
import pyarrow

RECORD = numpy.dtype(
    [(name, "<u8") for name in ("latency_ns", "request", "key_hash", "client")]
    + [(name, "<u4") for name in ("bytes", "thread", "op", "status")]
)
BATCH_ROWS = 122_880
ROWS_SHOWN = 16
# A copy of the few rows that come back does not matter.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")


class Timer:
    def __enter__(self):
        self.wall, self.cpu = -time.perf_counter(), -time.process_time()
        return self

    def __exit__(self, *_):
        self.wall += time.perf_counter()
        self.cpu += time.process_time()

    def answer(self, rows=()):
        return {"rows": list(rows), "wall": self.wall, "cpu": self.cpu}


def text_of(value):
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def told(table):
    """Returns few rows unchanged; of many, their number and the sum of each integer column."""
    if table.num_rows <= ROWS_SHOWN:
        columns = [column.to_pylist() for column in table.columns]
        return [[text_of(value) for value in row] for row in zip(*columns)]
    sums = [
        str(sum(column.cast(pyarrow.uint64(), safe=False).to_pylist()))
        for name, column in zip(table.column_names, table.columns)
        if pyarrow.types.is_integer(column.type)
    ]
    return [[str(table.num_rows)] + sums]


class Rows:
    """The rows of an ingest run, in batches of Arrow, each with one time."""

    def __init__(self, payloads, records):
        self.turn = numpy.fromfile(payloads, dtype=RECORD)
        self.records = records

    def batches(self):
        left, at = self.records, 0
        while left > 0:
            rows = self.turn[at : at + min(BATCH_ROWS, left)]
            columns = {"ts_ns": numpy.full(len(rows), time.time_ns(), dtype="<i8")}
            columns |= {name: numpy.ascontiguousarray(rows[name]) for name in RECORD.names}
            yield pyarrow.record_batch(columns)
            left -= len(rows)
            at = (at + len(rows)) % len(self.turn)

    def totals(self):
        latencies = self.turn["latency_ns"]
        turns, rest = divmod(self.records, len(latencies))
        total = int(latencies.sum()) * turns + int(latencies[:rest].sum())
        return [[str(self.records), str(total)]]


class DuckDb:
    def __init__(self, path, extension):
        import duckdb

        # Several processes may read a file that already exists.
        whole = path != ":memory:" and pathlib.Path(path).exists()
        self.db = duckdb.connect(path, read_only=whole, config={"allow_unsigned_extensions": "true"})
        self.db.execute(f"LOAD '{extension}'")
        self.db.execute("SET TimeZone = 'UTC'")

    def query(self, sql):
        with Timer() as timer:
            table = self.db.execute(sql).to_arrow_table()
        return timer.answer(told(table))

    def sums(self, sql, origin):
        """Returns the number of rows, the sum of `v`, and the sum of `v` times the whole seconds from `origin` to `t`."""
        with Timer() as timer:
            columns = self.db.execute(sql).fetchnumpy()
        values = columns["v"]
        times_us = columns["t"].astype("datetime64[us]").astype("<i8")
        weighted = values * numpy.floor(times_us / 1e6 - origin)
        sums = len(values), values.sum(), weighted.sum()
        return timer.answer([[text_of(float(number)) for number in sums]])

    def ingest(self, rows):
        self.db.execute("SET threads = 1")
        columns = "ts_ns BIGINT, " + ", ".join(
            f"{name} {'UBIGINT' if RECORD[name].itemsize == 8 else 'UINTEGER'}" for name in RECORD.names
        )
        self.db.execute(f"CREATE OR REPLACE TABLE t ({columns})")
        batches = list(rows.batches())
        with Timer() as timer:
            for batch in batches:
                self.db.register("batch", pyarrow.Table.from_batches([batch]))
                self.db.execute("INSERT INTO t FROM batch")
            self.db.execute("CHECKPOINT")
        return timer.answer(self.query("SELECT count(*), sum(latency_ns) FROM t")["rows"])


class Loom(DuckDb):
    def __init__(self, path, extension):
        super().__init__(":memory:", extension)


class ClickHouse:
    def __init__(self, path, extension):
        from chdb import session

        self.session = session.Session(path)
        self.run("CREATE DATABASE IF NOT EXISTS bench ENGINE = Atomic")

    def run(self, sql):
        return self.session.query(sql, "Arrow")

    def query(self, sql):
        with Timer() as timer:
            found = self.run(sql)
        data = found.bytes() if found.size() else b""
        if not data:
            return timer.answer()
        return timer.answer(told(pyarrow.ipc.open_file(data).read_all()))

    def ingest(self, rows):
        columns = "ts_ns Int64, " + ", ".join(f"{name} UInt{RECORD[name].itemsize * 8}" for name in RECORD.names)
        self.run("DROP TABLE IF EXISTS bench.t SYNC")
        self.run(f"CREATE TABLE bench.t ({columns}) ENGINE = MergeTree ORDER BY ts_ns")
        table = pyarrow.Table.from_batches(rows.batches())
        with Timer() as timer:
            self.run("INSERT INTO bench.t SELECT * FROM Python(table) SETTINGS max_threads = 1, max_insert_threads = 1")
        return timer.answer(self.query("SELECT count(), sum(latency_ns) FROM bench.t")["rows"])


class Prometheus:
    """A server at an address.

    A query is a list of requests to its API as JSON. A range has `start`, `end` and `step`; of samples, those `above` a threshold count.
    """

    def __init__(self, address, extension):
        # One connection for all requests, as dashboards keep it.
        self.connection = http.client.HTTPConnection(address)

    def query(self, requests):
        asked = json.loads(requests)
        limits = [(request.pop("above", None), request.pop("origin", 0)) for request in asked]
        with Timer() as timer:
            answers = [list(self.samples(request)) for request in asked]
        count, total, weighted = 0, 0.0, 0.0
        for (above, origin), samples in zip(limits, answers):
            for at, value in samples:
                if above is None or value > above:
                    count, total, weighted = count + 1, total + value, weighted + value * math.floor(at - origin)
        return timer.answer([[text_of(float(number)) for number in (count, total, weighted)]])

    def samples(self, request):
        kind = "query_range" if "start" in request else "query"
        self.connection.request("GET", f"/api/v1/{kind}?{urllib.parse.urlencode(request)}")
        with self.connection.getresponse() as reply:
            answer = json.load(reply)
        if answer["status"] != "success":
            raise ValueError(answer["error"])
        found = answer["data"]
        series = [] if found["resultType"] == "scalar" else found["result"]
        for one in series:
            for at, value in one.get("values") or [one["value"]]:
                yield at, float(value)


class Sqlite:
    def __init__(self, path, extension):
        self.path = path

    def ingest(self, rows):
        pathlib.Path(self.path).unlink(missing_ok=True)
        db = sqlite3.connect(self.path)
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute(f"CREATE TABLE t (ts_ns INTEGER, {', '.join(f'{name} INTEGER' for name in RECORD.names)})")
        # SQLite's integers are signed.
        signed = lambda value: value - (1 << 64) if value >> 63 else value
        values = [
            tuple(map(signed, row))
            for batch in rows.batches()
            for row in zip(*(column.to_pylist() for column in batch.columns))
        ]
        marks = ", ".join("?" * (1 + len(RECORD.names)))
        with Timer() as timer:
            db.executemany(f"INSERT INTO t VALUES ({marks})", values)
            db.commit()
            with open(self.path, "rb") as file:
                os.fsync(file.fileno())
        found = db.execute("SELECT count(*), sum(latency_ns) FROM t").fetchone()
        db.close()
        return timer.answer([[str(value) for value in found]])


class Lmdb:
    MAP_BYTES = 16 << 30
    TRANSACTION_RECORDS = 200_000

    def __init__(self, path, extension):
        self.path = path

    def ingest(self, rows):
        import lmdb

        payloads = [rows.turn[at].tobytes() for at in range(len(rows.turn))]
        items = [(struct.pack(">Q", at), payloads[at % len(payloads)]) for at in range(rows.records)]
        with lmdb.open(self.path, map_size=self.MAP_BYTES, writemap=True, sync=False) as env:
            with env.begin(write=True) as transaction:
                transaction.drop(env.open_db(None, txn=transaction), delete=False)
            with Timer() as timer:
                for at in range(0, len(items), self.TRANSACTION_RECORDS):
                    with env.begin(write=True) as transaction:
                        transaction.cursor().putmulti(items[at : at + self.TRANSACTION_RECORDS], append=True)
                env.sync(True)
            with env.begin() as transaction:
                cursor = transaction.cursor()
                total = sum(struct.unpack_from("<Q", value)[0] for value in cursor.iternext(keys=False))
                count = transaction.stat()["entries"]
        return timer.answer([[str(count), str(total)]])


class Grep:
    def __init__(self, path, extension):
        self.path = path

    def query(self, part):
        """Counts the lines with a text."""
        used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        before = used()
        with Timer() as timer:
            found = subprocess.run(["grep", "-c", "-F", part, self.path], env={"LC_ALL": "C"}, capture_output=True, text=True)
        timer.cpu = used() - before
        return timer.answer([[found.stdout.strip()]])


SYSTEMS = {
    "loom": Loom,
    "duckdb": DuckDb,
    "clickhouse": ClickHouse,
    "prometheus": Prometheus,
    "sqlite": Sqlite,
    "lmdb": Lmdb,
    "grep": Grep,
}


def near(one, other):
    """Compares with a tolerance, because threads add up in any order."""
    return math.isclose(float(one), float(other), rel_tol=1e-9, abs_tol=0.002)


def median(ask, seconds):
    answers = [ask()]
    while sum(one["wall"] for one in answers) < seconds:
        answers.append(ask())
        if not all(map(near, answers[0]["rows"][0], answers[-1]["rows"][0])):
            raise ValueError(f"{answers[0]['rows']}, then {answers[-1]['rows']}")
    answers.sort(key=lambda one: one["wall"])
    return answers[len(answers) // 2]


def answer(system, request):
    seconds = request.get("seconds", 0)
    match request["do"]:
        case "start":
            return {"wall": 0.0, "cpu": 0.0}
        case "query":
            return median(lambda: system.query(request["sql"]), seconds)
        case "sums":
            return median(lambda: system.sums(request["sql"], request["origin"]), seconds)
        case "ingest":
            rows = Rows(request["payloads"], request["records"])
            found = system.ingest(rows)
            if found["rows"] != rows.totals():
                raise ValueError(f"holds {found['rows']}, not {rows.totals()}")
            return found


def main():
    # Output of a library must not come between answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    system = None
    for line in sys.stdin:
        try:
            if system is None:
                system = SYSTEMS[sys.argv[1]](*sys.argv[2:])
            reply = answer(system, json.loads(line))
        except Exception as error:  # any error belongs in the report
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)


main()
