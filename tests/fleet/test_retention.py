"""Retention that passes the view of an archive and its directory while it is read: an error, and no answer that is not whole."""

import signal
import subprocess
from pathlib import Path

import duckdb
import pyarrow
import pytest

import loom_duckdb

from conftest import requests
from daemon import records, until

ARCHIVED, RECORDS = 20_000, 220_000
CONFIGURATION = """
[log]
chunk = "4KiB"
block = "64KiB"
segment = "64KiB"

[[source]]
name = 'request'
time = 'own'
field = [{ name = 'id', type = 'i64' }]
"""


@pytest.mark.parametrize("read_first", [1000, 2 * ARCHIVED], ids=["in the archive", "in the directory"])
def test_retention_that_passes_a_view_in_mid_scan_is_an_error(read_first: int, ingestd: str, tmp_path: Path) -> None:
    directory, archive, log = tmp_path / "live.loom", tmp_path / "archive", tmp_path / "log"
    configuration = tmp_path / "loom.toml"
    configuration.write_text(CONFIGURATION)
    db = loom_duckdb.connect()

    def load(first: int, end: int) -> None:
        file = tmp_path / f"{first}.parquet"
        duckdb.connect().execute(f"COPY (SELECT ts, id FROM ({requests(1, end)}) WHERE id >= {first}) TO '{file}'")
        subprocess.run([ingestd, "load", directory, "--source", "request", "--ts", "ts", file], check=True, capture_output=True)
        until(lambda: records(db, directory, "request") == end)

    with log.open("w") as errors, subprocess.Popen([ingestd, "run", directory, "--config", configuration], stderr=errors) as daemon:
        try:
            until(lambda: "listening on" in log.read_text())
            load(0, ARCHIVED)
            subprocess.run([ingestd, "archive", directory, "--to", archive], check=True, capture_output=True)
            load(ARCHIVED, RECORDS)
            for (statement,) in db.execute(f"FROM loom_attach('{directory}', name := 'whole', archive := '{archive}')").fetchall():
                db.execute(statement)
            assert db.execute("SELECT count(*) FROM whole.request").fetchone() == (RECORDS,)
            db.execute("SET threads = 1; SET streaming_buffer_size = '10KB'")
            view = db.execute("SELECT id FROM whole.request").to_arrow_reader(1000)
            found = 0
            while found < read_first:
                found += view.read_next_batch().num_rows
            configuration.write_text(CONFIGURATION.replace("[[source]]", "[retention]\nmax_bytes = '1MiB'\n\n[[source]]"))
            daemon.send_signal(signal.SIGHUP)
            until(lambda: "evicted" in log.read_text())
            with pytest.raises((OSError, pyarrow.ArrowException), match=r"retention.*attach.* again"):
                view.read_all()
        finally:
            daemon.terminate()
