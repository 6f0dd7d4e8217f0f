"""RocksDB reads through the page cache: its slowest reads and the cache's insertions, live, over windows of 1 to 120 s.

    sudo .venv/bin/python tests/cases/rocksdb/run.py [--seconds 150] [--keep FOLDER]

`db_bench` reads and writes while its system calls and the page cache are recorded. Every few seconds `windows.sql` is asked for each window
that is over. Exits 0 if each answer is what a plain scan of the same records says.
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
# How often the windows are asked for, and the database's files leave the page cache, as beside a neighbour that needs memory.
ASK_SECONDS, EVICT_SECONDS = 3, 1
VALUE_BYTES = 1000
LOAD = ["db_bench", "--benchmarks=readwhilewriting", "--use_existing_db", "--threads=2", "--benchmark_write_rate_limit=4000000"]
INDEX = ["--source", "syscall", "--index", "pread64", "--value", "latency_ns", "--where", "number = 'pread64'"]
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


def record_reads(place: Path, database: list[str], seconds: int) -> list[dict]:
    """Record `db_bench`, and ask meanwhile; the questions with their answers."""
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
            if now - said >= ASK_SECONDS:
                said = now
                asked += [ask(db, directory, back) for back in WINDOWS if back < now - began]
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


def ask(db: duckdb.DuckDBPyConnection, directory: Path, back: int) -> dict:
    """Ask for one window up to now."""
    t_to = datetime.now(UTC)
    db.execute(f"SET VARIABLE dir = '{directory}'; SET VARIABLE seconds = {back}; SET VARIABLE t_to = TIMESTAMPTZ '{t_to.isoformat()}'")
    began = time.perf_counter()
    answers = []
    for statement in db.extract_statements((HERE / "windows.sql").read_text()):
        rows = db.execute(statement).fetchall()
        if statement.type == duckdb.StatementType.SELECT:
            answers += rows
    took_ms = (time.perf_counter() - began) * 1000
    position = db.execute("SELECT getvariable('position')").fetchone()[0]
    preads, pages = answers
    return {"position": position, "t_to": t_to, "seconds": back, "preads": preads, "pages": pages, "took_ms": took_ms}


def compare(directory: Path, asked: list[dict]) -> None:
    """Compare each answer with a plain scan, and print those of the last time."""
    with scene.connect() as db:
        for one in asked:
            t_to = f"TIMESTAMPTZ '{one['t_to'].isoformat()}'"
            where = f"at := {one['position']}) WHERE ts >= {t_to} - to_seconds({one['seconds']}) AND ts < {t_to}"
            columns = "count(*), max(latency_ns), quantile_disc(latency_ns, 0.9999)"
            preads = f"SELECT {columns} FROM loom_scan('{directory}', 'syscall', {where} AND number = 'pread64'"
            pages = f"SELECT count(*), sum(pages) FROM loom_scan('{directory}', 'pagecache', {where} AND op = 'add'"
            for name, sql in [("preads", preads), ("pages", pages)]:
                plain = db.execute(sql).fetchone()
                holds(plain == one[name], f"{name} of {one['seconds']} s before {t_to}: {one[name]}, but a plain scan says {plain}")
    print("window    pread64 calls    max     p99.99    insertions    pages     both answers took")
    last = {one["seconds"]: one for one in asked}
    for one in last.values():
        (count, most, p99_99), (insertions, pages) = one["preads"], one["pages"]
        times = f"{most / 1e6:7.2f} ms {p99_99 / 1e6:7.2f} ms"
        print(f"{one['seconds']:4} s {count:14,} {times} {insertions:10,} {pages:11,} {one['took_ms']:13.1f} ms")
    print(f"\n{2 * len(asked)} answers, all equal to a plain scan at the same position")


if __name__ == "__main__":
    scene.main(run)
