"""Daemons, clients and extensions of two releases together: each pair works, or refuses with a sentence that names both formats.

`run` sets OLD and NEW: for each release a folder with its programs, clients and extension files.
"""

import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

FOLDERS = {name: Path(os.environ[name.upper()]) for name in ("old", "new")}
PUSHED = 1000
FIELD = '[[source.field]]\\nname = "n"\\ntype = "u64"\\n[[source.index]]\\nname = "n"\\nvalue = "n"\\nbins = "auto"'
# Each client pushes numbers, prints how many its connection has stored, waits for a line, and pushes more.
TURNS = """
    for turn in range(2):
        loom.sync()
        for n in range(turn * count, (turn + 1) * count):
            loom.push(source, struct.pack("<Q", n))
        print(loom.sync()["stored"], flush=True)
        sys.stdin.readline()
"""
DEFINE = f"""loom.define('[[source]]\\nname = "tick"\\n{FIELD}')"""
CLIENTS = {
    name: f"""
import struct, sys, loom_{name} as client
with client.connect(sys.argv[1]) as loom:
    count, {defined}
{TURNS}"""
    for name, defined in [("client", f"source = {PUSHED}, 'tick'; {DEFINE}"), ("ring", f"source = {PUSHED}, {DEFINE}")]
}
LINES = ["v2", "v1"]
NUMBERS = "SELECT count(*), sum(n) FROM loom_scan('{}', 'tick')"
# Texts that rows share in a directory of format 5, over many chunks.
SHARED = "SELECT range::UBIGINT AS n, repeat('shared ', 9) || range % 7 AS text FROM range(50_000)"
TEXTS = "SELECT count(*), sum(n), count(DISTINCT text), min(text), max(text) FROM"


def of_both(*names: str) -> Callable:
    """Run a test with both releases for each of these parameters."""
    return lambda test: functools.reduce(lambda test, name: pytest.mark.parametrize(name, list(FOLDERS))(test), names, test)


class Machine:
    """A Loom directory, and the daemons on it, which end with the test."""

    def __init__(self, directory: Path) -> None:
        """Take the place of the directory."""
        self.directory = directory
        self.started: list[subprocess.Popen] = []

    def start(self, release: str) -> subprocess.Popen:
        """Run a release's daemon, until it listens or ends."""
        command = [FOLDERS[release] / "ingestd", "run", self.directory]
        daemon = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.started.append(daemon)
        deadline = time.monotonic() + 120
        while daemon.poll() is None and not (self.directory / "ingest.sock").exists():
            assert time.monotonic() < deadline, "the daemon does not listen"
            time.sleep(0.02)
        return daemon

    def stop(self, daemon: subprocess.Popen) -> None:
        """Stop a daemon regularly."""
        daemon.terminate()
        _, said = daemon.communicate()
        assert daemon.returncode == 0, said

    def client(self, release: str, kind: str) -> subprocess.Popen:
        """Run a release's client."""
        command = [sys.executable, "-B", "-c", CLIENTS[kind], self.directory]
        pipe, folder = subprocess.PIPE, FOLDERS[release]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": str(folder)})

    def read(self, release: str, line: str, question: str = NUMBERS) -> object:
        """Return the answer to a question, such as the count and the sum of the numbers, or the error, of a release's extension."""
        with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
            db.execute(f"LOAD '{FOLDERS[release]}/duckdb-{line}/loom.duckdb_extension'")
            try:
                return db.execute(question.format(self.directory)).fetchone()
            except duckdb.Error as error:
                return str(error)

    @property
    def format(self) -> int:
        """Return the directory's format."""
        return json.loads((self.directory / "loom.json").read_text())["format"]


# The formats that a release reads which writes this one; others read their own alone.
READS = {5: [4, 5]}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path / "a.loom")
    yield machine
    for daemon in machine.started:
        if daemon.poll() is None:
            daemon.kill()
            daemon.communicate()


@pytest.fixture(scope="session")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Return the formats that the releases write."""
    found = {}
    for release in FOLDERS:
        machine = Machine(tmp_path_factory.mktemp("format") / "a.loom")
        machine.stop(machine.start(release))
        found[release] = machine.format
    return found


@pytest.fixture
def refusal(formats: dict[str, int]) -> Callable[[str, str], str | None]:
    """Return a function that says how a release refuses a directory of another, or None if it does not."""

    def says(reader: str, writer: str) -> str | None:
        reads = READS.get(formats[reader], [formats[reader]])
        versions = f"version {reads[0]}" if len(reads) == 1 else f"versions {reads[0]} to {reads[-1]}"
        return None if formats[writer] in reads else f"has format version {formats[writer]}, this build reads {versions}"

    return says


def numbers(count: int) -> tuple[int, int]:
    return count, count * (count - 1) // 2


@of_both("reader", "writer")
def test_a_directory_is_read_live_and_at_rest_or_refused(machine: Machine, refusal: Callable, reader: str, writer: str) -> None:
    daemon = machine.start(writer)
    client = machine.client(writer, "client")
    assert client.stdout.readline() == f"{PUSHED}\n"
    why = refusal(reader, writer)
    for is_live in (True, False):
        if not is_live:
            client.communicate("\n\n")
            machine.stop(daemon)
        for line in LINES:
            answer = machine.read(reader, line)
            assert why in answer if why else answer == numbers(PUSHED if is_live else 2 * PUSHED), (line, is_live, answer)
    done = subprocess.run([FOLDERS[reader] / "ingestd", "check", machine.directory], capture_output=True, text=True)
    assert why in done.stderr if why else done.returncode == 0, done


@pytest.mark.parametrize("kind", list(CLIENTS))
@of_both("client_of", "first", "second")
def test_a_client_goes_on_with_the_next_daemon_unless_that_refuses_the_directory(
    machine: Machine, refusal: Callable, kind: str, client_of: str, first: str, second: str
) -> None:
    daemon = machine.start(first)
    client = machine.client(client_of, kind)
    assert client.stdout.readline() == f"{PUSHED}\n", client.communicate()
    machine.stop(daemon)
    daemon, why = machine.start(second), refusal(second, first)
    if why:
        client.kill()
        client.communicate()
        assert why in daemon.communicate()[1]
        return
    # A ring's counts begin with the daemon that took it over.
    printed, failed = client.communicate("\n\n")
    assert (printed in (f"{PUSHED}\n", f"{2 * PUSHED}\n"), client.returncode) == (True, 0), (printed, failed)
    machine.stop(daemon)
    assert machine.read(second, "v2") == numbers(2 * PUSHED)


@of_both("creator", "writer", "reader")
def test_texts_that_a_release_writes_into_a_directory_of_another_are_read_by_both(
    machine: Machine, formats: dict[str, int], refusal: Callable, creator: str, writer: str, reader: str
) -> None:
    machine.stop(machine.start(creator))
    daemon, rows = machine.start(writer), machine.directory.with_name("rows.parquet")
    if why := refusal(writer, creator):
        assert why in daemon.communicate()[1]
        return
    duckdb.connect().execute(f"COPY ({SHARED}) TO '{rows}'")
    load = [FOLDERS[writer] / "ingestd", "load", machine.directory, rows, "--source", "tick"]
    subprocess.run(load, check=True, capture_output=True)
    machine.stop(daemon)
    assert machine.format == formats[creator]
    why, written = refusal(reader, creator), duckdb.connect().execute(f"{TEXTS} '{rows}'").fetchone()
    for line in LINES:
        answer = machine.read(reader, line, f"{TEXTS} loom_scan('{{}}', 'tick')")
        assert why in answer if why else answer == written, (line, answer)


@of_both("command_of", "daemon_of")
def test_commands_load_into_a_daemon_and_ask_it(machine: Machine, refusal: Callable, command_of: str, daemon_of: str) -> None:
    machine.start(daemon_of)
    rows = machine.directory.with_name("rows.parquet")
    duckdb.connect().execute(f"COPY (SELECT range::UBIGINT AS n FROM range({PUSHED})) TO '{rows}'")
    ingestd = FOLDERS[command_of] / "ingestd"
    done = subprocess.run([ingestd, "load", machine.directory, rows, "--source", "tick"], capture_output=True, text=True)
    if why := refusal(command_of, daemon_of):
        assert why in done.stderr, done
    else:
        assert done.returncode == 0, done
        assert machine.read(command_of, "v2") == numbers(PUSHED)
    # This asks the daemon alone, whatever the format of the directory is.
    done = subprocess.run([ingestd, "status", machine.directory], capture_output=True, text=True)
    assert (done.returncode, "tick" in done.stdout) == (0, not why), done
