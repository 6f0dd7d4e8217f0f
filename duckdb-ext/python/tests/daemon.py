"""A live Loom directory for the tests of clients: the demonstration's daemon.

The conftests here, in `sql/dashboards` and in `tests/fleet` import it.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

import loom_duckdb


@pytest.fixture(scope="session")
def ingestd() -> str:
    """Return the path of the daemon's program."""
    program = os.environ.get("INGESTD", "")
    assert Path(program).is_file(), "set INGESTD to the built program, such as target/release/ingestd"
    return program


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory, ingestd: str) -> Iterator[Path]:
    """Run the demonstration's daemon on `demo.loom`, with a few rows that it refuses and a rule that keeps pins."""
    place = tmp_path_factory.mktemp("live")
    directory = place / "demo.loom"
    # A request of more than 300 µs comes every few seconds.
    rule = "name = 'slow'\nsource = 'redis_request'\nindex = 'latency'\nwhen = 'max > 300us'\nover = '1s'\nevery = '1s'\npin = '1s'\n"
    (place / "rules.toml").write_text(f"[[rule]]\n{rule}")
    command = [ingestd, "demo", str(directory), "--seconds", "900", "--rate", "50000", "--config", str(place / "rules.toml")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as daemon:
        try:
            with loom_duckdb.connect() as db:
                until(lambda: records(db, directory, "redis_request") > 100_000)
            fields = ["id", "latency_ns", "key_hash", "client_port", "op", "hit", "request_bytes", "response_bytes", "tid", "key"]
            (place / "bad.csv").write_text("\n".join([",".join(fields), ",".join(["wrong"] * 10), ",".join(["wrong"] * 10)]) + "\n")
            load = [ingestd, "load", str(directory), "--source", "redis_request", str(place / "bad.csv")]
            loaded = subprocess.run(load, capture_output=True, text=True)
            assert "refused=2" in loaded.stdout, loaded
            yield directory
        finally:
            daemon.terminate()


def records(db: duckdb.DuckDBPyConnection, directory: Path, source: str) -> int:
    """Count a source's records; 0 if the directory or the source does not exist yet."""
    try:
        return db.execute(f"SELECT count(*) FROM loom_scan('{directory}', '{source}')").fetchall()[0][0]
    except duckdb.Error:
        return 0


def until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.05)
