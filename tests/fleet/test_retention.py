"""Retention removes records while a question reads them: the client gets an error that says what to do, and never a partial answer."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pyarrow
import pytest

import loom_duckdb

from conftest import TOKEN, Host, requests
from daemon import records, until
from test_fleet import sql_fleet

ARCHIVED, RECORDS = 20_000, 220_000
CONFIGURATION = """
[log]
chunk = "4KiB"
block = "64KiB"
segment = "64KiB"

[[source]]
name = 'request'
time = 'own'
field = [{ name = 'id', type = 'i64' }, { name = 'noise', type = 'u64' }, { name = 'more', type = 'u64' }]
index = [{ name = 'id', value = 'id' }]
"""


class Live:
    """A directory with small files, whose daemon removes most of them on request."""

    def __init__(self, place: Path, ingestd: str) -> None:
        """Start the daemon."""
        self.ingestd, self.directory, self.archive = ingestd, place / "live.loom", place / "archive"
        self._configuration, self._log = place / "loom.toml", place / "log"
        self._configuration.write_text(CONFIGURATION)
        command = [ingestd, "run", self.directory, "--config", self._configuration]
        with self._log.open("w") as errors:
            self.daemon = subprocess.Popen(command, stderr=errors)
        until(lambda: "listening on" in self._log.read_text())

    def load(self, first: int, end: int) -> None:
        """Record requests with these ids."""
        file = self._configuration.with_name(f"{first}.parquet")
        with loom_duckdb.connect() as db:
            # Columns do not make the noise smaller.
            rows = f"SELECT ts, id, hash(id) AS noise, hash(id + 1) AS more FROM ({requests(1, end)}) WHERE id >= {first}"
            db.execute(f"COPY ({rows}) TO '{file}'")
            command = [self.ingestd, "load", self.directory, "--source", "request", "--ts", "ts", file]
            subprocess.run(command, check=True, capture_output=True)
            until(lambda: records(db, self.directory, "request") == end)

    def evict(self) -> None:
        """Remove everything except the last megabyte."""
        self._configuration.write_text(CONFIGURATION.replace("[[source]]", "[retention]\nmax_bytes = '1MiB'\n\n[[source]]"))
        self.daemon.send_signal(signal.SIGHUP)
        until(lambda: "evicted" in self._log.read_text())


@pytest.fixture
def live(ingestd: str, tmp_path: Path) -> Iterator[Live]:
    """Run the daemon."""
    found = Live(tmp_path, ingestd)
    yield found
    found.daemon.terminate()
    found.daemon.wait(20)


@pytest.mark.parametrize("read_first", [1000, 2 * ARCHIVED], ids=["in the archive", "in the directory"])
def test_retention_that_passes_a_view_in_mid_scan_is_an_error(live: Live, read_first: int) -> None:
    live.load(0, ARCHIVED)
    subprocess.run([live.ingestd, "archive", live.directory, "--to", live.archive], check=True, capture_output=True)
    live.load(ARCHIVED, RECORDS)
    db = loom_duckdb.connect()
    for (statement,) in db.execute(f"FROM loom_attach('{live.directory}', name := 'whole', archive := '{live.archive}')").fetchall():
        db.execute(statement)
    assert db.execute("SELECT count(*) FROM whole.request").fetchone() == (RECORDS,)
    db.execute("SET threads = 1; SET streaming_buffer_size = '10KB'")
    view = db.execute("SELECT id FROM whole.request").to_arrow_reader(1000)
    found = 0
    while found < read_first:
        found += view.read_next_batch().num_rows
    live.evict()
    with pytest.raises((OSError, pyarrow.ArrowException), match=r"retention.*attach.* again"):
        view.read_all()


def test_retention_between_the_rounds_of_a_quantile_is_an_error_in_sql(live: Live, hosted: Callable[..., Host]) -> None:
    live.load(0, RECORDS)
    db = sql_fleet({"live": hosted(live.directory).address})
    db.execute("SET VARIABLE fleet = fleet_frozen()")
    db.execute("SET VARIABLE middle = fleet_bin('request', 'id', 0.5)")
    db.execute("SET VARIABLE last = fleet_bin('request', 'id', 1)")
    live.evict()
    said = "the hosts have other records in the bin than fleet_bin found; SET VARIABLE fleet = fleet_frozen"
    with pytest.raises(duckdb.Error, match=said):
        db.execute("SELECT fleet_quantile('request', 'id', getvariable('middle'))").fetchall()
    assert db.execute("SET VARIABLE middle = fleet_bin('request', 'id', 0.5)").fetchall() == []
    (least,) = db.execute("FROM fleet_ask('SELECT min(id) FROM host_scan(''request'')')").fetchone()[1:]
    assert db.execute("SELECT fleet_quantile('request', 'id', getvariable('middle'))").fetchone() == ((least + RECORDS - 1) // 2,)


def test_retention_between_the_rounds_of_a_quantile_is_an_error_in_python(
    live: Live, hosted: Callable[..., Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    live.load(0, RECORDS)
    fleet = loom_duckdb.Fleet({"live": hosted(live.directory).address}, TOKEN)
    ask = fleet._asker.ask

    def evict_then_ask(questions: dict, timeout_s: float) -> dict:
        if "host_histogram" not in (text := questions["live"].text) and "host_scan" in text:
            live.evict()
        return ask(questions, timeout_s)

    monkeypatch.setattr(fleet._asker, "ask", evict_then_ask)
    with pytest.raises(loom_duckdb.FleetError, match="retention removed records of 'request' between the rounds; ask again"):
        fleet.quantiles("request", "id", [0.5])
    found = fleet.quantiles("request", "id", [0, 1]).table["value"].to_pylist()
    assert 0 < found[0] < found[1] == RECORDS - 1
