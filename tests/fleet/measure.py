"""Measures the cost of a question to a fleet for each host, and the cost of an archive and of Spark for each record.

tests/FLEET.md has its figures.

    INGESTD=target/release/ingestd .fleet-venv/bin/python tests/fleet/measure.py

Two real hosts answer first, through a proxy that counts. Then more and more stand-ins, in a process of their own, replay one host's answers
at once, which shows the client's own part. With `records`, it measures the archiver on the records of the demonstration, and Spark with one
partition, from the directory and from a host. With `fleet [HOSTS]`, it asks that many stand-ins (10,000) for an exact p99.99: by one
client, the same while 1 % of the hosts fail, and by one of ten regions that each merge the answers of their hosts.
"""

import math
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import duckdb

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "duckdb-ext/python/tests"))

from pyspark.sql import SparkSession  # noqa: E402

import loom_duckdb  # noqa: E402
from loom_duckdb.spark import LoomDataSource  # noqa: E402
from standins import Answers, Behaviour, Crowd, Recorder, StandIn  # noqa: E402

from conftest import TOKEN, CountingProxy, Host, askers, cpu_ticks, free_port, requests  # noqa: E402

SIZES = [50, 100, 200]
TRIALS = 5
# A minute of requests, 10,000 a second.
RECORDS = 600_000
# The demonstration: records a second, and seconds.
RATE, SECONDS = 500_000, 20

QUESTIONS: dict[str, Callable[[loom_duckdb.Fleet], loom_duckdb.Answer]] = {
    "p99.99": lambda fleet: fleet.quantiles("request", "latency_us", [0.9999]),
    "p50": lambda fleet: fleet.quantiles("request", "latency_us", [0.5]),
    "aggregate, 60 buckets": lambda fleet: fleet.aggregate("request", "latency_us", bucket="1 second"),
    "p99, 60 buckets": lambda fleet: fleet.quantiles("request", "latency_us", [0.99], bucket="1 second"),
}

TAIL = 0.9999
# A fleet's hosts, those of a region, and those that share a process. The rounds of a quantile, at which hosts fail in turn.
FLEET, REGIONS, CROWD = 10_000, 10, 2500
ROUNDS = [b"host_snapshot", b"host_histogram", b"host_scan"]
# The questions of a region to its hosts: bins, and the values of one bin.
BINS = "SELECT lower, upper, count FROM host_histogram('request', 'latency_us')"
VALUES = "SELECT latency_us AS value, count(*) AS n FROM host_scan('request', index := 'latency_us', v_min := {}, v_max := {}) GROUP BY ALL"


class TimedFleet(loom_duckdb.Fleet):
    """A fleet that adds up the time it waits for hosts. The rest of a question is merging."""

    asking_s = 0.0

    def _ask(self, *arguments: object) -> object:
        began = time.monotonic()
        try:
            return super()._ask(*arguments)
        finally:
            self.asking_s += time.monotonic() - began


def main() -> None:
    """Measure and print both tables."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        hosts = {name: host(place / name, seed) for seed, name in enumerate(["left", "right"], 1)}
        try:
            real(hosts)
            answers = record(hosts["left"])
        finally:
            for each in hosts.values():
                each.stop()
    print(f"\n{'stand-ins':<24}{'hosts':>6}{'ms':>8}{'CPU ms/host':>13}{'merge ms/host':>15}")
    for hosts_n in SIZES:
        standins(answers, hosts_n)


def of_records() -> None:
    """Measure the archiver and Spark on the records of the demonstration, and print."""
    with tempfile.TemporaryDirectory() as folder:
        directory, archive = Path(folder) / "demo.loom", Path(folder) / "archive"
        command = [os.environ["INGESTD"], "demo", directory, f"--rate={RATE}", f"--seconds={SECONDS}", "--keep=4GiB"]
        subprocess.run(command, check=True, capture_output=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = subprocess.run([os.environ["INGESTD"], "archive", directory, "--to", archive], check=True, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        said = {name: int(value) for name, value in (each.split("=") for each in ended.stdout.split())}
        print(f"archive: {said['records'] / cpu_s / 1e6:.2f} M records/s of a core, {said['bytes'] / said['records']:.2f} B a record")
        served = Host(directory, Path(folder), free_port())
        try:
            spark(served)
        finally:
            served.stop()


def spark(served: Host) -> None:
    """Read three columns of a source with one task, and then none of its records; print rows a second of the difference."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "localhost")
    session = session.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    session.dataSource.register(LoomDataSource)
    for place in ({"path": str(served.directory)}, {"hosts": f"one={served.address}", "token": TOKEN}):
        options = {"source": "syscall", "columns": "ts,result,tid", **place}

        def read(options: dict[str, str]) -> tuple[float, int]:
            frame = session.read.format("loom").options(**options).load()
            walls = []
            for _ in range(TRIALS):
                began = time.monotonic()
                ((rows, *_),) = frame.selectExpr("count(*)", "sum(result)", "max(tid)", "max(ts)").collect()
                walls.append(time.monotonic() - began)
            return statistics.median(walls), rows

        idle_s, _ = read({**options, "t_to": "2000-01-01 00:00:00+00"})
        wall_s, rows = read(options)
        each_s = (wall_s - idle_s) / rows
        print(f"spark, {next(iter(place))}: {1e-6 / each_s:.2f} M rows/s a partition, {idle_s:.1f} s for a frame without rows")
    session.stop()


def host(place: Path, seed: int) -> Host:
    """Load a minute of requests, and serve them."""
    place.mkdir()
    duckdb.connect().execute(f"COPY ({requests(seed, RECORDS)}) TO '{place}/request.parquet'")
    load = [os.environ["INGESTD"], "load", place / "a.loom", "--source", "request", "--ts", "ts", "--index", "latency_us"]
    subprocess.run([*load, place / "request.parquet"], check=True, capture_output=True)
    return Host(place / "a.loom", place, free_port())


def real(hosts: dict[str, Host]) -> None:
    """Ask two real hosts, and print the bytes on the wire with the heads of HTTP, and the time."""
    print(f"{'two hosts':<24}{'bytes/host':>12}{'ms':>8}")
    for name, question in QUESTIONS.items():
        proxies = {name: CountingProxy(each.port) for name, each in hosts.items()}
        question(loom_duckdb.Fleet({name: f"quack:localhost:{proxy.port}" for name, proxy in proxies.items()}, TOKEN))
        sent = sum(proxy.bytes for proxy in proxies.values()) / len(proxies)
        fleet = TimedFleet({name: each.address for name, each in hosts.items()}, TOKEN)
        print(f"{name:<24}{sent:>12,.0f}{timed(fleet, question)[0]:>8.0f}")


def record(recorded: Host) -> Answers:
    """Return one host's answers to all questions."""
    recorder = Recorder(recorded.port)
    for question in QUESTIONS.values():
        question(loom_duckdb.Fleet({"one": recorder.address}, TOKEN))
    return recorder.answers


def standins(answers: Answers, hosts_n: int) -> None:
    """Ask this many stand-ins in another process."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe()
    process = context.Process(target=replay, args=(answers, hosts_n, far), daemon=True)
    process.start()
    addresses = near.recv()
    for name, question in QUESTIONS.items():
        fleet = TimedFleet({f"host-{number}": address for number, address in enumerate(addresses)}, TOKEN, timeout_s=120)
        wall, cpu, merging = timed(fleet, question)
        print(f"{name:<24}{hosts_n:>6}{wall:>8.0f}{cpu / hosts_n:>13.2f}{merging / hosts_n:>15.2f}")
    process.kill()
    process.join()


def replay(answers: Answers, hosts_n: int, started: Connection) -> None:
    """Answer until the process is killed."""
    hosts = [StandIn(answers) for _ in range(hosts_n)]
    started.send([each.address for each in hosts])
    time.sleep(3600)


def of_fleet(hosts_n: int) -> None:
    """Ask a whole fleet by each plan, and print the time, the client's CPU time, and the bytes of the hosts."""
    with tempfile.TemporaryDirectory() as folder:
        real = host(Path(folder) / "one", 1)
        recorder = Recorder(real.port)
        one = loom_duckdb.Fleet({"one": recorder.address}, TOKEN)
        # All hosts are alike, so the fleet's quantile is that of each.
        expected = one.quantiles("request", "latency_us", [TAIL]).table["value"].to_pylist()
        assert of_region(one) == expected
        real.stop()
    # The last of them, as many as a fleet, fail where the first do not.
    failing = [Behaviour(breaks_at=ROUNDS[number % len(ROUNDS)]) for number in range(hosts_n // 100)]
    behaviours = [Behaviour()] * hosts_n + failing
    crowds = [Crowd(recorder.answers, behaviours[first : first + CROWD]) for first in range(0, len(behaviours), CROWD)]
    addresses = {f"host-{number}": address for number, address in enumerate(address for crowd in crowds for address in crowd.addresses)}
    names = list(addresses)

    def ask(plan: str, asked: list[str], question: Callable[[loom_duckdb.Fleet], list[int]]) -> None:
        fleet = loom_duckdb.Fleet({name: addresses[name] for name in asked}, TOKEN, timeout_s=600, allow_missing=True)
        sent, began, cpu = sum(crowd.bytes for crowd in crowds), time.monotonic(), cpu_ms()
        assert question(fleet) == expected
        wall, cpu = time.monotonic() - began, (cpu_ms() - cpu) / 1000
        megabytes = (sum(crowd.bytes for crowd in crowds) - sent) / 1e6
        print(f"{plan:<24}{len(asked):>6} hosts{wall:>8.1f} s{cpu:>8.1f} s CPU{megabytes:>8.1f} MB", flush=True)

    def quantile(missing: int) -> Callable[[loom_duckdb.Fleet], list[int]]:
        def question(fleet: loom_duckdb.Fleet) -> list[int]:
            answer = fleet.quantiles("request", "latency_us", [TAIL])
            assert len(answer.missing) == missing
            return answer.table["value"].to_pylist()

        return question

    ask("one client", names[:hosts_n], quantile(0))
    ask("one client, 1 % fail", names[len(failing) :], quantile(len(failing)))
    ask("a region", names[: hosts_n // REGIONS], of_region)
    for crowd in crowds:
        crowd.close()


def of_region(fleet: loom_duckdb.Fleet) -> list[int]:
    """Find p99.99 of ten regions that all answer as this one: it merges its hosts' bins into one BLOB, and later the values of one bin."""
    with loom_duckdb.connect() as db:
        db.register("bins", fleet.sql(BINS).table)
        (blob,) = db.execute("SELECT loom_bins_weighted(lower, count) FROM bins").fetchone()
        # The client of the regions has their BLOBs, which name the bin with the rank. It counts the values below that bin and in it.
        merged = f"SELECT loom_bins_merge(part) AS merged FROM (SELECT ?::BLOB AS part FROM range({REGIONS}))"
        (near,) = db.execute(f"SELECT loom_bins_quantile(merged, {TAIL}) FROM ({merged})", [blob]).fetchone()
        found = f"lower <= {near} AND {near} < upper"
        lower, upper, below, total = db.execute(f"""SELECT any_value(lower) FILTER ({found}), any_value(upper) FILTER ({found}),
            sum(count) FILTER (upper <= {near}), sum(count) FROM bins""").fetchone()
        db.register("values", fleet.sql(VALUES.format(lower, upper - 1)).table)
        rank = math.ceil(TAIL * REGIONS * int(total)) - REGIONS * int(below)
        counted = f"SELECT value, sum({REGIONS} * sum(n)) OVER (ORDER BY value) AS reached FROM values GROUP BY value"
        return [db.execute(f"SELECT min(value) FROM ({counted}) WHERE reached >= {rank}").fetchone()[0]]


def timed(fleet: TimedFleet, question: Callable[[loom_duckdb.Fleet], loom_duckdb.Answer]) -> tuple[float, float, float]:
    """Ask once unmeasured, then several times. Return three ms: the median time, the mean CPU time, and the median of merging."""
    question(fleet)
    cpu, walls, mergings = cpu_ms(), [], []
    for _ in range(TRIALS):
        began, fleet.asking_s = time.monotonic(), 0.0
        question(fleet)
        walls.append((time.monotonic() - began) * 1000)
        mergings.append(walls[-1] - fleet.asking_s * 1000)
    return statistics.median(walls), (cpu_ms() - cpu) / TRIALS, statistics.median(mergings)


def cpu_ms() -> float:
    """Return the CPU time of the client: of this process, and of the one from which it asks."""
    asking = sum(map(cpu_ticks, askers())) / os.sysconf("SC_CLK_TCK")
    return (time.process_time() + asking) * 1000


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["records"]:
            of_records()
        case ["fleet", *hosts_n]:
            of_fleet(int(hosts_n[0]) if hosts_n else FLEET)
        case _:
            main()
