"""Daemon, client library and extension for AArch64 under QEMU: a directory has the same answers on both machines, whatever the pages.

`run` sets PREFIX and ROOT: the folder `usr` of an installed Loom, and the root of a Debian for AArch64.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PREFIX, ROOT = Path(os.environ["PREFIX"]), Path(os.environ["ROOT"])
INGESTD = PREFIX / "bin/ingestd"
PYTHON = ROOT / "usr/bin/python3.11"
DUCKDBS = ["v2", "v1"]
ROWS, PUSHED = 20_000, 50_000
REQUESTS = f"""SELECT TIMESTAMP '2026-01-01' + to_microseconds(i * 1000) AS ts, i::UINTEGER AS latency_us, 'op' || (i % 13) AS op,
    (i * 7919 % 100_003)::UBIGINT AS size FROM range({ROWS}) AS numbers(i)"""

# Prints the answers to questions about a directory.
ASK = """
import json, sys
import duckdb
with duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 2}) as db:
    db.execute("SET TimeZone = 'UTC'")
    # On a slow machine it would be drawn over the answers.
    db.execute("SET enable_progress_bar = false")
    db.execute(f"LOAD '{sys.argv[1]}'")
    print(json.dumps([db.execute(question).fetchall() for question in sys.argv[2:]], default=str))
"""

# Pushes numbers through shared memory. It does not fork: this QEMU ignores the advice that empties a page in children, without an error.
PUSH = """
import struct, sys
sys.path.insert(0, sys.argv[1])
import loom_ring
FIELD = '[[source.field]]\\nname = "n"\\ntype = "u64"\\n[[source.index]]\\nname = "n"\\nvalue = "n"\\nbins = "auto"'
with loom_ring.connect(sys.argv[2], library=sys.argv[3]) as loom:
    source = loom.define('[[source]]\\nname = "tick"\\ntime = "own"\\n' + FIELD)
    for n in range(int(sys.argv[4])):
        loom.push(source, struct.pack("<Q", n))
    print(loom.sync()["stored"])
"""


def questions(directory: Path) -> list[str]:
    """Return SQL whose answers depend on every layer: bytes, decoders, summaries, roll-ups, texts, times and losses."""
    request, tick = (f"'{directory}', '{source}'" for source in ("request", "tick"))
    return [
        f"SELECT name, records FROM loom_sources('{directory}') WHERE name NOT LIKE 'loom%' ORDER BY name",
        f"SELECT count(*), sum(latency_us), min(op), max(op), sum(size), max(ts)::VARCHAR FROM loom_scan({request})",
        f"""SELECT * REPLACE (bucket::VARCHAR AS bucket)
            FROM loom_aggregate({request}, 'latency_us', quantiles := [0.5, 0.9999], bucket := INTERVAL 1 SECOND) ORDER BY bucket""",
        f"SELECT count(*), min(latency_us) FROM loom_scan({request}, index := 'latency_us', v_min := {ROWS - 9})",
        f"SELECT op, count(*), avg(size) FROM loom_scan({request}) WHERE op = 'op7' GROUP BY op",
        f"SELECT count(*), sum(n), max(n) FROM loom_scan({tick}) WHERE n % 7 = 3",
        f"SELECT * FROM loom_aggregate({tick}, 'n', quantiles := [0.25, 0.999])",
        f"SELECT count(*) FROM loom_losses('{directory}')",
    ]


def on_arm(page: int, *command: object) -> list[str]:
    """Return the command that runs a program for AArch64 on a machine with such pages."""
    return ["qemu-aarch64", "-p", str(page), "-L", *map(str, [ROOT, *command])]


def run(*command: object, **environment: str) -> str:
    """Run a program to its end, and return its output."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def load(page: int, directory: Path) -> None:
    """Load the requests, with a daemon or without one."""
    rows = directory.with_name("request.parquet")
    duckdb.connect().execute(f"COPY ({REQUESTS}) TO '{rows}'")
    command = ["load", directory, rows, "--source", "request", "--ts", "ts", "--index", "latency_us"]
    assert f"stored={ROWS} " in run(*on_arm(page, INGESTD, *command))


def asked_on_arm(page: int, line: str, directory: Path) -> list:
    extension = PREFIX / f"lib/loom/duckdb-{line}/loom.duckdb_extension"
    # With pages of 64 KiB in QEMU, PyPI's DuckDB ends when it is imported, without Loom.
    ask = on_arm(min(page, 16384), PYTHON, "-c", ASK, extension, *questions(directory))
    return json.loads(run(*ask, PYTHONPATH=str(ROOT / f"duckdb-{line}")))


def asked_here(directory: Path) -> list:
    extension = REPOSITORY / "dist/duckdb-v2/loom.duckdb_extension"
    return json.loads(run(REPOSITORY / ".clients-venv/bin/python", "-c", ASK, extension, *questions(directory)))


@pytest.fixture(params=[4096, 16384, 65536])
def page(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def daemon(page: int, tmp_path: Path) -> Iterator[subprocess.Popen]:
    """Run a daemon on the directory `arm.loom` of the test's folder."""
    with subprocess.Popen(on_arm(page, INGESTD, "run", tmp_path / "arm.loom")) as daemon:
        deadline = time.monotonic() + 120
        while not (tmp_path / "arm.loom/ingest.sock").exists():
            assert daemon.poll() is None
            assert time.monotonic() < deadline, "the daemon does not listen"
            time.sleep(0.05)
        yield daemon
        daemon.kill()


def test_what_a_daemon_on_arm_records_is_read_alike_on_both_machines(page: int, daemon: subprocess.Popen, tmp_path: Path) -> None:
    directory = tmp_path / "arm.loom"
    load(page, directory)
    clients = REPOSITORY / "ingestd/clients/python"
    push = on_arm(page, PYTHON, "-B", "-c", PUSH, clients, directory, PREFIX / "lib/libloom_client.so", PUSHED)
    assert run(*push) == f"{PUSHED}\n"

    here = asked_here(directory)
    assert here[1][0][:2] == [ROWS, ROWS * (ROWS - 1) // 2]
    assert here[3] == [[9, ROWS - 9]]
    assert here[5][0][0] == len(range(3, PUSHED, 7))
    for line in DUCKDBS:
        assert asked_on_arm(page, line, directory) == here, line
    daemon.terminate()
    assert daemon.wait() == 0
    assert asked_here(directory) == here
    assert run(*on_arm(page, INGESTD, "check", directory))
