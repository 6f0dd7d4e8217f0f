"""Measures the cost of recording for the recorded program: the throughput of Redis and RocksDB, beside a raw file by the same probes.

    sudo .venv/bin/python tests/cases/probe_effect.py [--rounds 25] [--seconds 2]

Each round runs the load four times, each time in another order: without a recorder, with its events going to a raw file, to Loom, and to
Loom with queries every second. Runs are short and rounds are many, because a round's runs are compared with each other, and a machine
changes its pace within minutes. Prints a table in Markdown: medians (least to greatest). The cost beyond the raw file is the median of the
rounds' differences with its interval of 95 % confidence, by the ranks of the differences, so that a disturbed round counts only once.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import scene
from scene import holds

PORT = 6399
WAYS = ["nothing", "raw file", "Loom", "Loom, queries every second"]
DATABASE = ["--num=200000", "--value_size=1000", "--compression_type=none", "--cache_size=1048576"]
QUERIES = """
    SELECT count, max, p99_99 FROM loom_aggregate('{0}', 'syscall', 'latency', last := INTERVAL 10 SECOND, quantiles := [0.9999]);
    SELECT ts_ns, number, latency_ns FROM loom_top('{0}', 'syscall', 'latency', 5, last := INTERVAL 10 SECOND);
"""


def run() -> None:
    """Measure both programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=2, help="of each run")
    options = parser.parse_args()
    scene.require({"redis-server": "redis-server", "redis-benchmark": "redis-tools", "db_bench": "rocksdb-tools"})
    columns = [
        "program",
        "recorded by",
        "operations a second",
        "cost",
        "cost beyond the raw file (95 % confidence)",
        "events a run",
        "recorder's CPU an event",
    ]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    with redis() as load:
        measure("Redis, GET by 50 clients", load, ["--comm", "redis-server"], [], options)
    with rocksdb() as load:
        measure("RocksDB, random reads of cached files, 2 threads", load, ["--comm", "db_bench"], ["pagecache"], options)


@contextlib.contextmanager
def redis() -> Iterator[Callable[[float], float]]:
    """Run a Redis. Give a function that loads it for some seconds, and later with as many requests, and returns the rate."""
    requests: list[int] = []

    def bench(count: int) -> float:
        command = ["redis-benchmark", "-p", PORT, "-t", "get", "-c", 50, "-q", "-n", count]
        printed = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
        return float(re.search(r"([\d.]+) requests per second", printed)[1])

    def load(seconds: float) -> float:
        if not requests:
            requests.append(int(bench(20_000) * seconds))
        return bench(requests[0])

    with scene.redis(PORT):
        yield load


@contextlib.contextmanager
def rocksdb() -> Iterator[Callable[[float], float]]:
    """Fill a database. Give a function that reads it for a number of seconds and returns the rate."""
    with scene.folder(None) as place:
        database = [f"--db={place}/database", *DATABASE]

        def bench(*more: str) -> str:
            return subprocess.run(["db_bench", *database, *more], capture_output=True, text=True, check=True).stdout

        bench("--benchmarks=fillseq", "--disable_wal=1")

        def load(seconds: float) -> float:
            printed = bench("--benchmarks=readrandom", "--use_existing_db", "--threads=2", f"--duration={max(1, round(seconds))}")
            return float(re.search(r"readrandom .* (\d+) ops/sec", printed)[1])

        yield load


@dataclasses.dataclass
class Recorded:
    """The work of a recorder in one run."""

    events: int = 0
    cpu_ns: float = 0


@contextlib.contextmanager
def cpu_time(process: subprocess.Popen, recorded: Recorded) -> Iterator[None]:
    """Take the CPU time of a recorder while the block runs."""

    def spent_ns() -> float:
        threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads)

    before = spent_ns()
    yield
    recorded.cpu_ns = spent_ns() - before


def measure(name: str, load: Callable[[float], float], filters: list[str], more: list[str], options: argparse.Namespace) -> None:
    """Run the load in all ways, in turn, and print the lines of a table."""
    load(options.seconds)
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    done: dict[str, list[Recorded]] = {way: [] for way in WAYS}
    for turn in range(options.rounds):
        order = WAYS[turn % len(WAYS) :] + WAYS[: turn % len(WAYS)]
        # Every other time backward, so that no way always follows the same one.
        for way in order if turn // len(WAYS) % 2 == 0 else order[::-1]:
            with tempfile.TemporaryDirectory(prefix="loom-case-", dir=".") as place, recorder(way, Path(place), filters, more) as recorded:
                rates[way].append(load(options.seconds))
            done[way].append(recorded)
            # The writes that are left by a run must not slow down the next one.
            os.sync()
            print(f"{name}, round {turn + 1}, {way}: {rates[way][-1]:,.0f} a second, {recorded.events:,} events", file=sys.stderr)
    # A round's runs are close in time, so each is compared with its own round's.
    for way in WAYS:
        rounds = list(zip(rates[way], rates["raw file"], rates["nothing"], strict=True))
        cells = [name, way, spread(rates[way], "{:,.0f}"), "", "", "", ""]
        if way != "nothing":
            cells[3] = spread([100 * (1 - rate / free) for rate, _, free in rounds], "{:.1f}", " %")
            cells[5] = f"{statistics.median(one.events for one in done[way]):,.0f}"
            cells[6] = spread([one.cpu_ns / one.events for one in done[way]], "{:.0f}", " ns")
        if way.startswith("Loom"):
            cells[4] = interval([100 * (raw - rate) / free for rate, raw, free in rounds])
        print(f"| {' | '.join(cells)} |", flush=True)


def interval(points: list[float]) -> str:
    """Write a median with its interval of 95 % confidence: between the k-th least and the k-th greatest of n figures."""
    ordered, n = sorted(points), len(points)
    # A median is below the k-th least with the chance that fewer than k of n coins show heads.
    below = [sum(math.comb(n, heads) for heads in range(k)) / 2**n for k in range(n)]
    k = max(k for k in range(n) if below[k] <= 0.025)
    if k == 0:
        return f"{statistics.median(points):.1f} points (six rounds or more give an interval)"
    return f"{statistics.median(points):.1f} points ({ordered[k - 1]:.1f} to {ordered[-k]:.1f})"


def spread(figures: list[float], form: str, unit: str = "") -> str:
    """Write a median with its unit, and the least and the greatest."""
    middle, least, most = (form.format(figure) for figure in (statistics.median(figures), min(figures), max(figures)))
    return f"{middle}{unit} ({least} to {most})"


@contextlib.contextmanager
def recorder(way: str, place: Path, filters: list[str], more: list[str]) -> Iterator[Recorded]:
    """Record in one way while the block runs. The result is complete after the block."""
    recorded = Recorded()
    if way == "nothing":
        yield recorded
    elif way == "raw file":
        with scene.waiting("raw", place, *filters, *[f"--{one}" for one in more]) as raw:
            with cpu_time(raw, recorded):
                yield recorded
            done = scene.result(raw)
        holds(not any(source["lost"] for source in done.values()), f"the raw file is not complete: {done}")
        recorded.events = sum(source["recorded"] for source in done.values())
    else:
        directory = place / "program.loom"
        captures = ["syscalls", *filters, *[word for one in more for word in ("+", one)]]
        with scene.recording(directory, *captures) as record:
            with cpu_time(record, recorded), queries(directory) if "queries" in way else contextlib.nullcontext():
                yield recorded
            scene.recorded(record)
        holds(not scene.losses(directory), f"Loom is not complete: {scene.losses(directory)}")
        recorded.events = sum(scene.records(directory, source) for source in ["syscall", *more])


@contextlib.contextmanager
def queries(directory: Path) -> Iterator[None]:
    """Ask every second, in a process of its own like a dashboard."""
    command = [sys.executable, __file__, "--ask", directory]
    with scene.started(command) as process:
        yield
        holds(process.poll() is None, f"the queries ended with {process.returncode}")


def ask(directory: str) -> None:
    """Ask every second, for ever."""
    second = threading.Event()
    with scene.connect() as db:
        while True:
            for query in db.extract_statements(QUERIES.format(directory)):
                db.execute(query).fetchall()
            second.wait(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2])
    scene.main(run)
