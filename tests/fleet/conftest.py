"""The common parts of the tests of a fleet: Loom directories, hosts that `ingestd serve` serves, and clients of them.

INGESTD names the daemon's program. Everything is real: daemons, served DuckDBs on loopback ports, and the wheel.
"""

import atexit
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import duckdb_cli
import pytest
from pyspark.sql import SparkSession

import loom_duckdb
from loom_duckdb.files import extension_file, load_statement
from loom_duckdb.spark import LoomDataSource

from daemon import ingestd, records, until

__all__ = ["ingestd"]

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-for-tests-0123456789"
RECORDS = 400_000
# The program itself, because PyPI's command of that name is a script that starts it.
DUCKDB = str(Path(duckdb_cli.__file__).parent / "duckdb")

# Every host that was started.
STARTED: list[subprocess.Popen] = []


class Host:
    """A served Loom directory: its address, and the process of `ingestd serve`."""

    def __init__(self, directory: Path, place: Path, port: int, *options: str) -> None:
        """Start to serve `directory`; wait until it listens."""
        self.directory, self.place, self.port = directory, place, port
        self.address = f"quack:localhost:{port}"
        self.client = client()
        self.process = serve(directory, place, port, *options)
        self.log: list[str] = []
        self.await_line(self.address)

    def await_line(self, text: str) -> str:
        """Wait for the next line of the log that has a text, and return it."""
        for line in self.process.stderr:
            self.log.append(line)
            if text in line:
                return line
        raise AssertionError(f"the host ended without {text!r}: {self.log}")

    def server(self) -> int:
        """Return the process id of the served DuckDB."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        (server,) = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "duckdb"]
        return server

    def stop(self) -> None:
        """End it as a service manager does."""
        self.process.terminate()
        assert self.process.wait(20) == 0

    def kill(self) -> None:
        """Kill it as a crash would. Its server ends with it."""
        self.process.kill()
        self.process.wait(20)

    def ask(self, question: str, token: str | None = None) -> list[tuple]:
        """Ask one question, as any client does."""
        return self.client.execute("FROM quack_query(?, ?, token := ?)", [self.address, question, token or TOKEN]).fetchall()


def serve(
    directory: Path,
    place: Path,
    port: int,
    *options: str,
    token: str = TOKEN,
    mode: int = 0o600,
    duckdb: str | Path = DUCKDB,
    folders: Sequence[Path] | None = None,
) -> subprocess.Popen:
    """Start `ingestd serve`; its log is a pipe. `mode` is that of the token's file, and `folders` hold the extensions."""
    (place / "token").touch()
    (place / "token").chmod(mode)
    (place / "token").write_text(token + "\n")
    command = [os.environ["INGESTD"], "serve", directory, "--listen", f"localhost:{port}", "--token-file", place / "token"]
    command += ["--duckdb", duckdb, *(f"--extensions={folder}" for folder in folders or extension_folders()), *options]
    STARTED.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
    return STARTED[-1]


@atexit.register
def end_all() -> None:
    """End the hosts of tests that failed."""
    for process in STARTED:
        process.kill()


def extension_folders() -> list[Path]:
    """Return the folders of Loom's extension and of those that Quack needs, in this environment."""
    return [Path(file).parent for file in (loom_duckdb.extension_path(), extension_file("httpfs"), extension_file("quack"))]


def client() -> duckdb.DuckDBPyConnection:
    """Open a DuckDB that can ask hosts."""
    db = duckdb.connect()
    for name in ("httpfs", "quack"):
        db.execute(load_statement(name))
    db.execute("SET http_retries = 0")
    return db


def latest_scan(host: Host) -> int:
    """Return the number of a host's latest scan."""
    return host.ask("SELECT coalesce(max(scan), 0) FROM host_scan_stats()")[0][0]


def cpu_ticks(pid: int) -> int:
    """Return the CPU time of a process, in user space and in the kernel."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))


def askers() -> list[int]:
    """Return the processes from which this one asks hosts."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children if b"loom_duckdb.asking" in Path(f"/proc/{child}/cmdline").read_bytes()]


def free_port() -> int:
    """Find a port on which nothing listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture(scope="session")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Host]]:
    """Return a function that serves a directory. All hosts end with the session."""
    started: list[Host] = []

    def host(directory: Path, *options: str) -> Host:
        started.append(Host(directory, tmp_path_factory.mktemp("host"), free_port(), *options))
        return started[-1]

    yield host
    for each in started:
        each.process.terminate()
    for each in started:
        each.process.wait(20)


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory, ingestd: str) -> Callable[..., Path]:
    """Return a function that writes a directory whose source `request` has the rows of a SELECT, with a column `ts`."""

    def write(name: str, rows: str, *options: str) -> Path:
        place = tmp_path_factory.mktemp(name)
        duckdb.connect().execute(f"COPY ({rows}) TO '{place}/request.parquet'")
        command = [ingestd, "load", place / f"{name}.loom", "--source", "request", "--ts", "ts", *options, place / "request.parquet"]
        subprocess.run(command, check=True, capture_output=True)
        return place / f"{name}.loom"

    return write


def requests(seed: int, records: int = RECORDS) -> str:
    """Write the rows of requests: a request each 0.1 ms, with a latency whose long tail differs by seed."""
    return f"""SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 100) AS ts, i AS id, CASE WHEN i % 3 = 0 THEN 'SET' ELSE 'GET' END AS op,
        (100 / sqrt((hash(i + {seed} * 1_000_003) % 1_000_000 + 1) / 1_000_000))::UINTEGER AS latency_us
        FROM range({records}) AS numbers(i)"""


@pytest.fixture(scope="session")
def directories(load: Callable[..., Path]) -> dict[str, Path]:
    """Write two directories with 400,000 requests each."""
    return {name: load(name, requests(seed), "--index", "latency_us") for seed, name in enumerate(["left", "right"], 1)}


@pytest.fixture(scope="session")
def pair(directories: dict[str, Path], hosted: Callable[..., Host]) -> dict[str, Host]:
    """Serve these two directories."""
    return {name: hosted(directory) for name, directory in directories.items()}


@pytest.fixture(scope="session")
def fleet(pair: dict[str, Host]) -> loom_duckdb.Fleet:
    """Return a client of both."""
    return loom_duckdb.Fleet({name: host.address for name, host in pair.items()}, TOKEN)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory, ingestd: str, hosted: Callable[..., Host]) -> Iterator[dict[str, Host]]:
    """Run three daemons that record live, each served."""
    place = tmp_path_factory.mktemp("three")
    with contextlib.ExitStack() as running:
        for rate, name in [(3000, "a"), (4000, "b"), (5000, "c")]:
            command = [ingestd, "demo", place / f"{name}.loom", "--seconds", "900", "--rate", str(rate)]
            running.callback(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).kill)
        with loom_duckdb.connect() as db:
            until(lambda: all(records(db, place / f"{name}.loom", "redis_request") > 5_000 for name in "abc"))
        yield {name: hosted(place / f"{name}.loom") for name in "abc"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run Spark with two tasks at a time, in this Python, with the data source."""
    if "CI" not in os.environ and shutil.which("java") is None:
        pytest.skip("java is missing")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    session.dataSource.register(LoomDataSource)
    yield session
    session.stop()


class CountingProxy:
    """Passes TCP connections on to a port, and counts the bytes both ways.

    While it is silent, or once it has passed a given number of bytes, it passes nothing on.
    """

    def __init__(self, port: int) -> None:
        """Listen on a port of its own."""
        self.target, self.bytes, self.lock, self.silent = port, 0, threading.Lock(), threading.Event()
        self.silent_after = float("inf")
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("localhost", self.target))
            for source, sink in [(near, far), (far, near)]:
                threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.silent.is_set() or self.bytes > self.silent_after:
                    continue
                with self.lock:
                    self.bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
