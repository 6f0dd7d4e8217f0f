"""The demonstration: a daemon ingests, DuckDB's command line finds out why six requests are slow, and the truth confirms it.

    .venv/bin/python tests/demo.py INGESTD

Exits 0 and prints `six of six` if the SQL finds exactly the requests that the generator hid, otherwise 1.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DUCKDB = ROOT / ".venv" / "bin" / "duckdb"
EXTENSION = ROOT / "dist" / "duckdb-v1" / "loom.duckdb_extension"
SECONDS = 24
RATE = 1_200_000
NEEDLES = 6


def main(ingestd):
    place = Path(tempfile.mkdtemp(prefix="loom-demo-"))
    try:
        return run(ingestd, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run(ingestd, place):
    directory, truth = place / "demo.loom", place / "truth.jsonl"
    print(f"ingestd demo: {RATE:,} records a second for {SECONDS} seconds, in {directory}", flush=True)
    command = [ingestd, "demo", directory, "--seconds", str(SECONDS), "--rate", str(RATE), "--truth", truth]
    daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # Each needle adds a line to the truth. Its content is not read before the SQL has ended.
        while daemon.poll() is None and lines(truth) < NEEDLES:
            time.sleep(0.1)
        asked = subprocess.run(
            [DUCKDB, "-unsigned", "-batch", "-no-init", "-cmd", f"LOAD '{EXTENSION}'", "-f", ROOT / "sql" / "demo.sql"],
            cwd=place,
            env={**os.environ, "LOOM_DIR": str(directory)},
            stdin=subprocess.DEVNULL,
        )
        if daemon.poll() is not None:
            return failed("the daemon ended before the SQL did")
        if asked.returncode != 0:
            return failed(f"duckdb ended with {asked.returncode}")
        if daemon.wait() != 0:
            return failed(f"ingestd ended with {daemon.returncode}")
    finally:
        daemon.kill()
        daemon.wait()
    return compare(place / "found.csv", truth) or rate(directory)


def lines(file):
    return len(file.read_text().splitlines()) if file.exists() else 0


def compare(found_file, truth_file):
    with open(found_file, newline="") as file:
        found = {(int(row["request"]), int(row["call"]), int(row["packet"])) for row in csv.DictReader(file)}
    with open(truth_file) as file:
        truth = {(needle["request"], needle["syscall"], needle["packet"]) for needle in map(json.loads, file)}
    if len(truth) != NEEDLES or found != truth:
        return failed(f"{len(found & truth)} of {NEEDLES}; found {sorted(found)}, hidden {sorted(truth)}")
    return 0


def rate(directory):
    sql = f"""
        LOAD '{EXTENSION}';
        SELECT sum(records) AS records, sum(records) / (epoch(max(last_ts)) - epoch(min(first_ts))) AS a_second
        FROM loom_sources('{directory}') WHERE name NOT LIKE 'loom_%'"""
    said = subprocess.run([DUCKDB, "-unsigned", "-batch", "-no-init", "-json", "-c", sql], capture_output=True, text=True)
    total = json.loads(said.stdout)[0]
    print(f"{int(total['records']):,} records, {total['a_second']:,.0f} a second")
    print("six of six")
    return 0


def failed(why):
    print(f"demo: {why}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
