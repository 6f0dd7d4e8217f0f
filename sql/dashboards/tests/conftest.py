"""Fixtures for the tests of clients: a live directory, its answers in plain SQL, and the started programs."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import loom_duckdb
import pytest
from daemon import ingestd, live

__all__ = ["ingestd", "live"]

DASHBOARDS = Path(__file__).resolve().parents[1]
ROOT = DASHBOARDS.parents[1]
SCREENSHOTS = ROOT / "target" / "screenshots"
CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 180_000


@pytest.fixture
def db(live: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection for the test, in UTC, with the views of the live directory in `live`."""
    with loom_duckdb.connect(live, name="live") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def init_sql(place: Path, directory: Path, duckdb_version: str) -> Path:
    """Write the file of statements that starts a client of this DuckDB: it loads Loom, attaches `live`, and locks the database."""
    file = place / "init.sql"
    lock = loom_duckdb.lock_sql(directory, duckdb_version=duckdb_version)
    file.write_text(loom_duckdb.init_sql(directory, name="live", duckdb_version=duckdb_version) + lock)
    return file


def program(name: str, package: str) -> str:
    """Return the path of a program. Without it the test is skipped; in CI it fails."""
    path = shutil.which(name)
    if path is None:
        missing = f"{name} is missing; install it (Debian, Ubuntu: {package})"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


def ask(command: list[str | Path], cwd: Path) -> list[dict[str, str]]:
    """Run an example, and return the rows that it prints."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.fixture(scope="session")
def go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example in Go."""
    built = tmp_path_factory.mktemp("go") / "live"
    done = subprocess.run(
        [program("go", "golang-go 1.24 or later"), "build", "-o", built, "."], cwd=DASHBOARDS / "go", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return built


def answers(port: int) -> bool:
    """Whether a server listens."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
