"""Fixtures: Loom directories, written by the `ingestd` that the variable INGESTD names, and running explorers."""

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from daemon import ingestd, live, records, until

__all__ = ["ingestd", "live", "records", "until"]

RECORDS = 20_000


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


class Explorer:
    """A running explorer: its address, and its answers."""

    def __init__(self, process: subprocess.Popen) -> None:
        """Read the address that it prints."""
        line = process.stdout.readline()
        assert line.startswith("explore: http"), line
        self.process = process
        self.url = line.removeprefix("explore: ").strip()

    def request(self, path: str, body: object = None, **headers: str) -> tuple[int, dict]:
        """Send a request; `body` becomes JSON. Return the status and the answer."""
        data = None if body is None else json.dumps(body).encode()
        given = {"content-type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
        request = urllib.request.Request(self.url.partition("?")[0] + path, data, given)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def query(self, sql: str) -> tuple[int, dict]:
        """Send a query."""
        return self.request("query", {"sql": sql})


@pytest.fixture(scope="session")
def explore() -> Iterator[Callable[..., Explorer]]:
    """Return a function that starts an explorer with the arguments given."""
    with contextlib.ExitStack() as started:

        def start(*arguments: str | Path) -> Explorer:
            command = [sys.executable, "-m", "loom_duckdb.explore", "--no-browser", "--port", "0", *map(str, arguments)]
            process = started.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            started.callback(process.kill)
            return Explorer(process)

        yield start
