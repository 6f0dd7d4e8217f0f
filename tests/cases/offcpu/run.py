"""Redis behind a neighbour that takes its processor: a request is slow, and no system call is.

    sudo .venv/bin/python tests/cases/offcpu/run.py [--requests 200000] [--keep FOLDER]

A job at real-time priority takes the processor of `redis-server` for 25 ms, again and again. Exits 0 if `drilldown.sql` explains most of
the slow requests by waits for the processor, and names the job.
"""

import argparse
import csv
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import scene
from scene import holds

HERE = Path(__file__).resolve().parent
PORT = 16380
# The processor that the server and the job share.
CPU = 1
# The name of the job's thread, as the kernel keeps it.
JOB = "nightly-report"
# 25 ms of work at real-time priority, then half a second of sleep.
WORK = f"""
import os, time
from pathlib import Path
Path("/proc/self/comm").write_text("{JOB}")
os.sched_setaffinity(0, {{{CPU}}})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
while True:
    end = time.monotonic() + 0.025
    while time.monotonic() < end:
        pass
    time.sleep(0.5)
"""
SLOW_MIN = 5


def run() -> None:
    """Run the case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=200_000, help="of four connections together")
    parser.add_argument("--keep", type=Path, help="a new folder for the Loom directory and all else, which stays")
    options = parser.parse_args()
    scene.require({"redis-server": "redis-server", "taskset": "util-linux"})
    with scene.folder(options.keep) as place:
        record_requests(place, options.requests)
        explain(place)


def record_requests(place: Path, requests: int) -> None:
    """Record the server, its clients and the scheduler while the job runs."""
    directory = place / "offcpu.loom"
    captures = ["syscalls", "--comm", "redis-server", "+", "sched"]
    with (
        scene.redis(PORT, place, "taskset", "-c", CPU),
        scene.daemon(directory),
        scene.waiting("redis-load", "--address", f"127.0.0.1:{PORT}", "--requests", requests, "--dir", directory) as load,
        scene.recording(directory, *captures) as record,
        scene.started([sys.executable, "-c", WORK]),
    ):
        done = scene.result(load)
        print(scene.recorded(record), end="")
    holds(done["stored"] == done["requests"] == requests, f"the load stored {done}")
    holds(not scene.losses(directory), f"records are missing: {scene.losses(directory)}")
    print(f"{requests / done['seconds']:,.0f} requests a second\n")


def explain(place: Path) -> None:
    """Run the drill-down, and compare its verdict with the truth."""
    found = place / "verdict.csv"
    settings = f"SET VARIABLE dir = '{place}/offcpu.loom';"
    copies = f"COPY (SELECT *, (SELECT count(*) FROM slow) AS slow FROM verdict) TO '{found}'"
    print(scene.command_line("-cmd", settings, "-cmd", f".read {HERE}/drilldown.sql", "-c", copies))
    with found.open(newline="") as file:
        rows = list(csv.DictReader(file))
    explained = [row["culprit"] for row in rows if 2 * float(row["wait_ms"]) > float(row["latency_ms"])]
    holds(explained.count(JOB) >= SLOW_MIN, f"{len(rows)} requests are explained, {explained.count(JOB)} of them by the job")
    slow = int(rows[0]["slow"])
    print(f"{len(explained)} of {slow} slow requests waited for the processor, {explained.count(JOB)} of them because {JOB} had it")
    holds(2 * len(explained) >= slow, "the drill-down explains less than half of them")


if __name__ == "__main__":
    scene.main(run)
