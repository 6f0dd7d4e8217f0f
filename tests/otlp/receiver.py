"""A daemon that receives OTLP, and SQL over its directory. INGESTD names the daemon's program."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

EXTENSION = Path(__file__).resolve().parents[2] / "dist/duckdb-v2/loom.duckdb_extension"
PATIENCE_SECONDS = 30


class Receiver:
    """A running daemon: its address for OTLP, and its stored records."""

    def __init__(self, directory: Path, address: str) -> None:
        """Load DuckDB's extension."""
        self.directory = directory
        self.address = address
        self.database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        self.database.execute(f"LOAD '{EXTENSION}'")

    def ask_all(self, sql: str) -> list[tuple]:
        """Return all rows. DIR is replaced by the directory."""
        return self.database.execute(sql.replace("DIR", f"'{self.directory}'")).fetchall()

    def ask(self, sql: str) -> tuple:
        """Return the only row."""
        (row,) = self.ask_all(sql)
        return row

    def losses(self) -> int:
        """Return the number of records that are counted as lost."""
        return self.ask("SELECT coalesce(sum(records), 0) FROM loom_losses(DIR)")[0]


@contextlib.contextmanager
def receiving(place: Path, more: str = "") -> Iterator[Receiver]:
    """Run a daemon, and stop it at the end. `more` is added to its `[otlp]`."""
    directory, config = place / "o.loom", place / "o.toml"
    config.write_text(f'[otlp]\nlisten = ["127.0.0.1:0"]\npromote = [{{ name = "http.route" }}]\n{more}\n')
    command = [os.environ["INGESTD"], "run", directory, "--config", config]
    with running(command, place / "o.log", r"receiving OTLP on (\S+)") as address:
        yield Receiver(directory, address)


@contextlib.contextmanager
def running(command: list, log: Path, pattern: str) -> Iterator[str]:
    """Run a server. Give the first group of the pattern in its log, which means that it is ready. Stop it at the end, without an error."""
    with log.open("w") as errors:
        program = subprocess.Popen(command, stderr=errors)

    try:
        until(lambda: program.poll() is not None or re.search(pattern, log.read_text()))
        ready = re.search(pattern, log.read_text())
        assert ready, log.read_text()
        yield ready[1]
        program.terminate()
        assert program.wait(PATIENCE_SECONDS) == 0, log.read_text()
    finally:
        program.kill()
        program.wait()


def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    last = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < last, "the condition did not hold in time"
        time.sleep(0.05)
