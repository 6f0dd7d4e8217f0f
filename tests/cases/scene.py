"""The common parts of the cases: programs that start and end in order, a daemon, a recording, questions in DuckDB's command line.

Every program is real. A missing one is reported in one sentence with the package that has it. Everything needs root.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parents[2]
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
INGESTD = Path(os.environ.get("INGESTD", RELEASE / "ingestd"))
CASES = RELEASE / "cases"
DUCKDB = ROOT / ".venv/bin/duckdb"
# The environment that has the wheel, and the most clicks and calls in which a cause must be found.
CLIENTS = ROOT / ".clients-venv/bin/python"
ACTIONS_MAX = 5
EXTENSION = ROOT / "dist/duckdb-v1/loom.duckdb_extension"
# The blocks are small, so that small runs have chunks on disk too.
CONFIG = '[log]\nblock = "8MiB"\n'


class CaseError(Exception):
    """Something is missing, or a check failed."""


def main(run: Callable[[], None]) -> None:
    """Run a case. A failure prints one line and exits with status 1."""
    try:
        run()
    except (CaseError, subprocess.CalledProcessError) as error:
        print(f"{Path(sys.argv[0]).parent.name}/{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        sys.exit(1)


def holds(condition: bool, otherwise: object) -> None:
    """Fail unless the condition holds."""
    if not condition:
        raise CaseError(otherwise)


def require(packages: dict[str, str]) -> None:
    """Fail if a program is missing or this user is not root. `packages` maps programs to the Debian packages that have them."""
    for program, package in packages.items():
        holds(shutil.which(program) is not None, f"{program} is missing; install the package '{package}'")
    for built in (INGESTD, CASES, EXTENSION):
        holds(built.exists(), f"{built} is missing; run 'make build'")
    holds(os.geteuid() == 0, "recording needs root; run it with sudo")


@contextlib.contextmanager
def folder(kept: Path | None) -> Iterator[Path]:
    """Give a folder: a new one that is removed at the end, or `kept`, which must not exist."""
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="loom-case-") as place:
        yield Path(place)


@contextlib.contextmanager
def started(command: list[object], ending: signal.Signals = signal.SIGTERM, **options: object) -> Iterator[subprocess.Popen]:
    """Start a program, and end it by a signal when the block ends, if it has not ended by then."""
    process = subprocess.Popen([str(word) for word in command], text=True, **options)
    try:
        yield process
    finally:
        stop(process, ending)


def stop(process: subprocess.Popen, ending: signal.Signals = signal.SIGTERM) -> None:
    """End a program by a signal, or kill it if it does not end within a minute."""
    if process.poll() is None:
        process.send_signal(ending)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        holds(time.monotonic() < end, f"waited {seconds} s for {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def redis(port: int, place: Path | None = None, *before: str) -> Iterator[None]:
    """Run a Redis that keeps nothing, by the command `before` if there is one; it accepts connections."""

    def accepts() -> bool:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    command = [*before, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with started(command, stdout=subprocess.DEVNULL, cwd=place):
        until(accepts, "Redis")
        yield


@contextlib.contextmanager
def daemon(directory: Path, config: str = CONFIG) -> Iterator[None]:
    """Run a daemon on a Loom directory."""
    toml = directory.with_suffix(".toml")
    toml.write_text(config)
    with started([INGESTD, "run", directory, "--config", toml], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: (directory / "ingest.sock").exists() or process.poll() is not None, "the daemon")
        holds(process.poll() is None, f"ingestd ended with status {process.returncode}")
        yield


@contextlib.contextmanager
def recording(directory: Path, *captures: object) -> Iterator[subprocess.Popen]:
    """Record while the block runs. `recorded` ends the recording."""
    command = [INGESTD, "record", directory, *captures]
    with started(command, signal.SIGINT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        line = process.stderr.readline()
        holds("recording into" in line, f"ingestd record did not begin: {line}{'' if process.poll() is None else process.stderr.read()}")
        yield process


def recorded(process: subprocess.Popen) -> str:
    """End a recording like Ctrl-C, and return its output."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    holds(process.returncode == 0, f"ingestd record ended with {process.returncode}: {errors}")
    return out


@contextlib.contextmanager
def waiting(*arguments: object) -> Iterator[subprocess.Popen]:
    """Start a program of `cases` that is set up. `go` on its standard input begins it."""
    with started([CASES, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        holds(process.stdout.readline() == "ready\n", f"cases {arguments[0]} did not start")
        yield process


def result(process: subprocess.Popen) -> dict:
    """Begin a program that waits, wait for its end, and return its result."""
    out, _ = process.communicate("go\n")
    holds(process.returncode == 0, f"{process.args} ended with {process.returncode}")
    return json.loads(out)


def command_line(*arguments: str) -> str:
    """Run DuckDB's command line with Loom, and return its output."""
    command = [DUCKDB, "-unsigned", "-batch", "-no-init", "-cmd", f"LOAD '{EXTENSION}'", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    holds(done.returncode == 0 and not done.stderr, f"duckdb: {done.stderr}")
    return done.stdout


def clicks(case: str, directory: Path, row: int = 0) -> dict:
    """Look at a case as a person, who opens a row of the slow records, and as an agent do, and return what `clicks.py` found."""
    command = [CLIENTS, Path(__file__).with_name("clicks.py"), case, directory, str(row)]
    done = subprocess.run(command, capture_output=True, text=True)
    holds(done.returncode == 0, f"clicks.py ended with {done.returncode}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    holds(max(found["clicks"], found["calls"]) <= ACTIONS_MAX, f"it took {found['clicks']} clicks and {found['calls']} calls")
    return found


def connect() -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with Loom, using the extension for earlier versions: WHERE does not prune there, so a scan is a plain one."""
    db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    db.execute(f"LOAD '{EXTENSION}'; SET TimeZone = 'UTC'")
    return db


def records(directory: Path, source: str) -> int:
    """Count the records of a source; -1 if there is no such source yet."""
    if not directory.exists():
        return -1
    with connect() as db:
        found = db.execute(f"SELECT records FROM loom_sources('{directory}') WHERE name = '{source}'").fetchone()
    return found[0] if found else -1


def losses(directory: Path) -> list[tuple]:
    """Return the known losses of a directory."""
    with connect() as db:
        return db.execute(f"FROM loom_losses('{directory}')").fetchall()
