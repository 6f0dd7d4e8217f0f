"""Damages a small Loom directory in every way that its input lists, and asks DuckDB about it, all in this one process.

    every_byte.py EXTENSION DIR < JSON

Memory is limited for the whole process, and each damage has ten seconds before a signal ends the process.
"""

import json
import os
import resource
import signal
import sys

import duckdb

ADDRESS_SPACE_BYTES = 4 << 30
SECONDS = 10
# Damage to these files keeps no other chunk from being read: the logs, and files that have a copy.
CONFINED = ("records", "tail", "chunks", "times", "catalog", "catalog.copy", "loom.json", "loom.json.copy")


def main():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    extension, directory = sys.argv[1:]
    told = json.load(sys.stdin)
    config = {"allow_unsigned_extensions": "true", "memory_limit": "512MB", "threads": "2"}
    connection = duckdb.connect(config=config)
    connection.execute(f"LOAD '{extension}'")
    written = {address: (n, mark) for address, n, mark in told["rows"]}
    looker = Looker(connection, written, told["chunk_bytes"])
    looker.look(directory, None)
    wrong = []
    # Each damage uses another name, because the extension caches a directory by its path.
    name = directory
    for ordinal, damage in enumerate(told["damages"]):
        fresh = f"{directory}.{ordinal}"
        os.rename(name, fresh)
        name = fresh
        path = os.path.join(name, damage["file"])
        with open(path, "rb") as file:
            sound = file.read()
        with open(path, "wb") as file:
            file.write(damaged(sound, damage))
        signal.alarm(SECONDS)
        try:
            looker.look(name, damage)
        except Wrong as error:
            wrong.append(f"{damage}: {error}")
        signal.alarm(0)
        with open(path, "wb") as file:
            file.write(sound)
    os.rename(name, directory)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{len(told['damages'])} damages, {looker.errors} errors, {looker.rows} rows, peak {peak_mib} MiB")
    if wrong:
        print(f"{len(wrong)} wrong:", *wrong[:20], sep="\n")
        sys.exit(1)


class Wrong(Exception):
    pass


def damaged(sound, damage):
    if "bytes" in damage:
        return sound[: damage["bytes"]]
    at = damage["at"]
    return sound[:at] + bytes([sound[at] ^ damage["mask"]]) + sound[at + 1 :]


class Looker:
    def __init__(self, connection, written, chunk_bytes):
        self.connection = connection
        self.written = written
        self.chunk_bytes = chunk_bytes
        self.rows = 0
        self.errors = 0

    def ask(self, sql, directory):
        """Returns rows, or the text of an ordinary error that names the directory."""
        try:
            rows = self.connection.execute(sql).fetchall()
        except (duckdb.IOException, duckdb.BinderException, duckdb.InvalidInputException) as error:
            self.errors += 1
            text = str(error)
            if directory not in text and "unknown source" not in text and "has no index" not in text:
                raise Wrong(f"names nothing: {text}") from error
            return text
        except duckdb.Error as error:
            raise Wrong(f"{type(error).__name__}: {error}") from error
        self.rows += len(rows)
        return rows

    def look(self, directory, damage):
        confined = damage is not None and damage["file"].split("/")[0] in CONFINED
        rows = self.ask(f"SELECT addr, n, mark FROM loom_scan('{directory}', 'r')", directory)
        if not isinstance(rows, str):
            self.hold(rows)
            if (confined or damage is None) and len(rows) != len(self.written):
                raise Wrong(f"{len(rows)} rows of {len(self.written)}")
        elif confined:
            self.around(directory, damage)
        for sql in (
            f"SELECT addr, n, mark FROM loom_tail('{directory}', 'r', 50)",
            f"SELECT addr, n, mark FROM loom_scan('{directory}', 'r', index := 'n', v_min := 400, v_max := 410)",
        ):
            rows = self.ask(sql, directory)
            if not isinstance(rows, str):
                self.hold(rows)
        rows = self.ask(f"SELECT count, sum, p50 FROM loom_aggregate('{directory}', 'r', 'n', quantiles := [0.5])", directory)
        if confined and not isinstance(rows, str):
            n = len(self.written)
            if rows != [(n, n * (n - 1) // 2, (n + 1) // 2 - 1)]:
                raise Wrong(f"aggregate: {rows}")
        for call in ("loom_samples('{}', NULL)", "loom_series_aggregate('{}', NULL)", "loom_labels('{}', NULL)"):
            self.ask(f"SELECT COLUMNS(*)::VARCHAR FROM {call.format(directory)}", directory)
        for function in ("loom_sources", "loom_indexes", "loom_status", "loom_losses", "loom_snapshot"):
            self.ask(f"SELECT COLUMNS(*)::VARCHAR FROM {function}('{directory}')", directory)
        self.ask(f"SELECT COLUMNS(*)::VARCHAR FROM loom_chunks('{directory}', source := 'r')", directory)
        for call in ("loom_histogram('{}', 'r', 'n')", "loom_heat('{}', 'r', 'n')", "loom_why('{}', 'r', 'n', NULL, NULL, 100, NULL)", "loom_estimate('{}', 'r', index := 'n')"):
            self.ask(f"SELECT COLUMNS(*)::VARCHAR FROM {call.format(directory)}", directory)
        rows = self.ask(f"SELECT addr, n, mark FROM loom_top('{directory}', 'r', 'n', 50)", directory)
        if not isinstance(rows, str):
            self.hold(rows)
        rows = self.ask(f"SELECT sum(count) FROM loom_rate('{directory}', 'r')", directory)
        if confined and not isinstance(rows, str) and rows != [(len(self.written),)]:
            raise Wrong(f"rate: {rows}")
        if self.connection.execute("SELECT 42").fetchall() != [(42,)]:
            raise Wrong("the session is gone")

    def hold(self, rows):
        for address, n, mark in rows:
            if self.written.get(address) != (n, mark):
                raise Wrong(f"row {n} was not written at {address}")

    def around(self, directory, damage):
        """Checks that chunks that were not hit give all of their rows, one by one."""
        chunks = {}
        for address, (n, _) in self.written.items():
            chunks.setdefault(address // self.chunk_bytes, []).append(n)
        for chunk, numbers in chunks.items():
            if chunk in damage["hit"]:
                continue
            low, high = min(numbers), max(numbers)
            sql = f"SELECT addr, n, mark FROM loom_scan('{directory}', 'r', index := 'n', v_min := {low}, v_max := {high})"
            rows = self.ask(sql, directory)
            if isinstance(rows, str) or [n for _, n, _ in rows] != sorted(numbers):
                raise Wrong(f"chunk {chunk} was not hit: {rows if isinstance(rows, str) else len(rows)}")
            self.hold(rows)


main()
