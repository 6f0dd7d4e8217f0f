"""RocksDB reads through the page cache: its slowest reads and the cache's insertions, live, over windows of 1 to 120 s.

    sudo .venv/bin/python tests/cases/rocksdb/run.py [--seconds 150] [--keep FOLDER]

`db_bench` reads and writes while its system calls and the page cache are recorded. Ten times, `windows.sql` runs for each window that is
already over. Exits 0 if each answer equals that of a plain scan of the same records.
"""

import argparse
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import scene
from scene import holds

HERE = Path(__file__).resolve().parent
WINDOWS = [1, 2, 5, 10, 30, 60, 120]
# The number of times that all windows are asked for.
ASKS = 10
# The interval at which the database's files are dropped from the page cache, as by a neighbour that needs memory.
EVICT_SECONDS = 1
VALUE_BYTES = 1000
LOAD = ["db_bench", "--benchmarks=readwhilewriting", "--use_existing_db", "--threads=2", "--benchmark_write_rate_limit=4000000"]
INDEX = ["--source", "syscall", "--index", "pread64", "--value", "latency_ns", "--where", "number = 'pread64'"]
# The questions of windows.sql, answered from the records alone.
PLAIN = [
    ("syscall", "number = 'pread64'", ["count(*)", "max(latency_ns)", "quantile_disc(latency_ns, 0.9999)"]),
    ("pagecache", "op = 'add'", ["count(*)", "sum(pages)"]),
]
DATABASE = ["--compression_type=none", f"--value_size={VALUE_BYTES}", "--cache_size=1048576"]


def run() -> None:
    """Run the case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=14, help="how long db_bench runs; 150 for windows of up to 120 s")
    parser.add_argument("--keys", type=int, default=200_000, help=f"of the database, {VALUE_BYTES} bytes each")
    parser.add_argument("--keep", type=Path, help="a new folder for the Loom directory and all else, which stays")
    options = parser.parse_args()
    scene.require({"db_bench": "rocksdb-tools"})
    with scene.folder(options.keep) as place:
        database = [f"--db={place}/database", f"--num={options.keys}", *DATABASE]
        fill = ["db_bench", "--benchmarks=fillseq", "--disable_wal=1", *database]
        subprocess.run(fill, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        asked = record_reads(place, database, options.seconds)
        compare(place / "rocksdb.loom", asked)
        click(place / "rocksdb.loom")


def record_reads(place: Path, database: list[str], seconds: int) -> list[dict]:
    """Record `db_bench`, and ask meanwhile. Return the questions with their answers."""
    directory = place / "rocksdb.loom"
    asked = []
    with (
        scene.daemon(directory),
        scene.started([*LOAD, f"--duration={seconds}", *database], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as bench,
        scene.recording(directory, "syscalls", "--comm", "db_bench", "+", "pagecache") as record,
        scene.connect() as db,
    ):
        subprocess.run([scene.INGESTD, "index", "add", directory, *INDEX], check=True, stdout=subprocess.DEVNULL)
        began = evicted = said = time.monotonic()
        while bench.poll() is None:
            now = time.monotonic()
            if now - evicted >= EVICT_SECONDS:
                evicted = now
                evict(place / "database")
            if now - said >= seconds / (ASKS + 1):
                said = now
                asked.append(ask(db, directory, [back for back in WINDOWS if back < now - began]))
            time.sleep(0.05)
        printed = bench.communicate()[0]
        print(scene.recorded(record), end="")
    holds(bench.returncode == 0 and asked, f"db_bench ended with {bench.returncode}: {printed}")
    holds(not scene.losses(directory), f"records are missing: {scene.losses(directory)}")
    print(next(line for line in printed.splitlines() if line.startswith("readwhilewriting")))
    print(f"{scene.records(directory, 'syscall'):,} system calls, {scene.records(directory, 'pagecache'):,} events of the page cache\n")
    return asked


def evict(database: Path) -> None:
    """Drop the database's files from the page cache."""
    for file in database.glob("*.sst"):
        try:
            handle = os.open(file, os.O_RDONLY)
        except FileNotFoundError:
            continue  # A compaction removed it.
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def ask(db: duckdb.DuckDBPyConnection, directory: Path, windows: list[int]) -> dict:
    """Ask for all windows up to now, at one position."""
    t_to = f"TIMESTAMPTZ '{datetime.now(UTC).isoformat()}'"
    db.execute(f"SET VARIABLE dir = '{directory}'; SET VARIABLE t_to = {t_to}")
    db.execute(f"SET VARIABLE position = (SELECT position FROM loom_snapshot('{directory}'))")
    position = db.execute("SELECT getvariable('position')").fetchone()[0]
    answers = {}
    for back in windows:
        began = time.perf_counter()
        db.execute(f"SET VARIABLE seconds = {back}")
        rows = []
        for statement in db.extract_statements((HERE / "windows.sql").read_text()):
            answer = db.execute(statement)
            if statement.type == duckdb.StatementType.SELECT:
                rows.append(answer.fetchone())
        answers[back] = (*rows, (time.perf_counter() - began) * 1000)
    return {"position": position, "t_to": t_to, "answers": answers}


def compare(directory: Path, asked: list[dict]) -> None:
    """Compare the answers with plain scans, and print those of the last time."""
    with scene.connect() as db:
        for one in asked:
            windows = [f"FILTER (ts >= {one['t_to']} - to_seconds({back}) AND ts < {one['t_to']})" for back in one["answers"]]
            for place, (source, condition, columns) in enumerate(PLAIN):
                selected = ", ".join(f"{column} {window}" for window in windows for column in columns)
                scan = f"loom_scan('{directory}', '{source}', at := {one['position']})"
                plain = db.execute(f"SELECT {selected} FROM {scan} WHERE {condition}").fetchone()
                loom = tuple(value for answer in one["answers"].values() for value in answer[place])
                holds(loom == plain, f"'{source}' up to {one['t_to']}: {loom}, but a plain scan says {plain}")
    print("window    pread64 calls    max     p99.99    insertions    pages     both answers took")
    for back, ((count, most, p99_99), (insertions, pages), took_ms) in asked[-1]["answers"].items():
        times = f"{most / 1e6:7.2f} ms {p99_99 / 1e6:7.2f} ms"
        print(f"{back:4} s {count:14,} {times} {insertions:10,} {pages:11,} {took_ms:13.1f} ms")
    print(f"\n{sum(2 * len(one['answers']) for one in asked)} answers, all equal to a plain scan at the same position")


def click(directory: Path) -> None:
    """Find the pages for which slow reads wait in the explorer and by an agent's calls."""
    slow = "SELECT *, ts_ns - latency_ns::BIGINT AS began FROM loom_top(getvariable('dir'), 'syscall', 'pread64', 20)"
    added = "SELECT * FROM loom_scan(getvariable('dir'), 'pagecache') WHERE op = 'add'"
    near = "p.pid = s.pid AND abs(p.ts_ns - began) <= 1_000_000"
    with scene.connect() as db:
        db.execute(f"SET VARIABLE dir = '{directory}'")
        joined = f"({slow}) AS s LEFT JOIN ({added}) AS p ON {near}"
        counted = f"SELECT count(p.pid) FROM {joined} GROUP BY s.addr, latency_ns ORDER BY latency_ns DESC"
        insertions = [count for (count,) in db.execute(counted).fetchall()]
    # On a busy machine a read may wait for a processor alone, so the row is opened that waited for the disk.
    row = next((row for row, count in enumerate(insertions) if count > 0), None)
    holds(row is not None, "none of the slowest reads began with an insertion")
    found = scene.clicks("rocksdb", directory, row)
    shown = sum("pagecache" in line and " op add " in line for line in found["near"])
    said = f"{shown} insertions are shown at the start of slow read {row}, {insertions[row]} are in the records"
    holds(0 < shown <= insertions[row], said)
    (called,) = found["found"]
    holds(2 * called["with_pages"] > called["slow"], f"only {called['with_pages']} of {called['slow']} slow reads began with an insertion")
    print(f"\nexplorer: {found['clicks']} clicks to {shown} insertions within a millisecond of the start of a slow read")
    print(f"agent: {found['calls']} calls; {called['with_pages']} of the {called['slow']} slowest reads began with insertions")


if __name__ == "__main__":
    scene.main(run)
