"""What the tests share: a Loom directory of known records, written by `ingestd`, which the variable INGESTD names."""

import os
import subprocess
from pathlib import Path

import duckdb
import pytest

RECORDS = 20_000


@pytest.fixture(scope="session")
def ingestd() -> str:
    """Return the path of the daemon's program."""
    program = os.environ.get("INGESTD", "")
    assert Path(program).is_file(), "set INGESTD to the built program, such as target/release/ingestd"
    return program


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory, ingestd: str) -> Path:
    """Write `shop.loom`: a request each millisecond from 2026-03-01 on, whose latency_us is its number modulo 1000."""
    place = tmp_path_factory.mktemp("shop")
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts, i AS id, (i % 1000)::UINTEGER AS latency_us
            FROM range({RECORDS}) AS numbers(i)) TO '{place}/request.parquet'"""
    )
    directory = place / "shop.loom"
    options = ["--source", "request", "--ts", "ts", "--index", "latency_us", str(place / "request.parquet")]
    subprocess.run([ingestd, "load", str(directory), *options], check=True, capture_output=True)
    return directory
