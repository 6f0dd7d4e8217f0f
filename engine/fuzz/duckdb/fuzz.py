"""Hosts the fuzz target `duckdb`: DuckDB in this process, the extension and the fuzzer in one library, and a look at each directory.

    fuzz.py EXTENSION FOLDER [libFuzzer's options, folders and files]

EXTENSION is the library of `loom-fuzz-duckdb` with DuckDB's footer, FOLDER an empty one for directories. A crash, an answer that is
neither rows nor an ordinary error, a session that is gone, or a wrong answer about a sound directory ends the process, and libFuzzer keeps
the input.
"""

import ctypes
import os
import resource
import shutil
import sys
import traceback
from pathlib import Path

import duckdb

ADDRESS_SPACE_BYTES = 4 << 30

# The errors for a damaged file, or for a statement that no longer fits it.
ORDINARY = (duckdb.IOException, duckdb.BinderException, duckdb.InvalidInputException)
# Words in messages of these kinds that report a defect.
BROKEN = ("an assertion of the extension failed", "INTERNAL", "database has been invalidated")

# Each table function, with each kind of pruning; `{dir}` is the directory.
QUESTIONS = (
    "FROM loom_sources('{dir}')",
    "FROM loom_indexes('{dir}')",
    "FROM loom_snapshot('{dir}')",
    "FROM loom_status('{dir}')",
    "FROM loom_losses('{dir}')",
    "FROM loom_attach('{dir}')",
    "FROM loom_chunks('{dir}')",
    "FROM loom_chunks('{dir}', source := 'event')",
    "FROM loom_scan('{dir}', 'metric')",
    "FROM loom_scan('{dir}', 'metric', complete := true) WHERE size > 2000 AND kind IN (1, 2)",
    "FROM loom_scan('{dir}', 'metric', after := 12345)",
    "FROM loom_scan('{dir}', 'metric', index := 'some')",
    "FROM loom_scan('{dir}', 'event', index := 'level', v_min := 0, v_max := 500)",
    "FROM loom_scan('{dir}', 'event') WHERE ts_ns BETWEEN 0 AND 500000 ORDER BY level LIMIT 5",
    "FROM loom_scan('{dir}', 'event', at := 150000)",
    "SELECT count(*), max(addr) FROM loom_scan('{dir}', 'raw')",
    "FROM loom_scan('{dir}', 'raw') LIMIT 3",
    "FROM loom_tail('{dir}', 'metric', 20)",
    "FROM loom_tail('{dir}', 'event', 5)",
    "FROM loom_aggregate('{dir}', 'metric', 'size', quantiles := [0.5, 0.999])",
    "FROM loom_aggregate('{dir}', 'metric', 'ratio', approx := true, quantiles := [0.9])",
    "FROM loom_aggregate('{dir}', 'event', 'level', bucket := INTERVAL 1 MILLISECOND, v_min := 10)",
    "FROM loom_histogram('{dir}', 'event', 'level')",
    "FROM loom_histogram('{dir}', 'metric', 'size', bucket := INTERVAL 1 SECOND)",
    "FROM loom_heat('{dir}', 'metric', 'size', points := 20, bands := 9)",
    "FROM loom_why('{dir}', 'metric', 'size', NULL, NULL, 100, NULL)",
    "FROM loom_why('{dir}', 'event', NULL, now() - INTERVAL 1 HOUR, now(), NULL, NULL, against := 'before')",
    "FROM loom_rate('{dir}', 'event', bucket := INTERVAL 1 MILLISECOND, partial := false)",
    "FROM loom_top('{dir}', 'metric', 'size', 20)",
    "FROM loom_top('{dir}', 'event', 'level', 7, least := true)",
    "FROM loom_samples('{dir}', NULL, label_names := ['job'], label_patterns := ['.*'])",
    "FROM loom_series_aggregate('{dir}', NULL, labels := MAP {{'job': '.*'}}, bucket := INTERVAL 1 SECOND)",
    "FROM loom_series_aggregate('{dir}', NULL, by := ['job'], bucket := INTERVAL 1 SECOND)",
    "FROM loom_labels('{dir}', NULL)",
    "FROM loom_estimate('{dir}', 'metric', index := 'size', bucket := INTERVAL 1 SECOND)",
)

# Questions to the sound directory, after each damaged one and once in a while.
SHORT = "SELECT count, sum::VARCHAR, p50 FROM loom_aggregate('{dir}', 'metric', 'size', quantiles := [0.5])"
LONG = "SELECT count(*), sum(size), max(level), count(DISTINCT addr) FROM (FROM loom_scan('{dir}', 'metric') UNION ALL BY NAME FROM loom_scan('{dir}', 'event'))"
LONG_EVERY = 16


class Wrong(Exception):
    pass


class Looker:
    def __init__(self, extension, folder):
        config = {"allow_unsigned_extensions": "true", "memory_limit": "256MB", "threads": "2"}
        self.connection = duckdb.connect(config=config)
        self.connection.execute(f"LOAD '{extension}'")
        self.sound = folder / "sound"
        shutil.copytree(Path(__file__).parent.parent / "base", self.sound)
        self.answers = {sql: self.fetch(sql, self.sound) for sql in (SHORT, LONG)}
        self.seen = 0

    def fetch(self, sql, directory):
        return self.connection.execute(sql.format(dir=directory)).fetchall()

    def look(self, directory):
        for sql in QUESTIONS:
            try:
                self.fetch(f"SELECT COLUMNS(*)::VARCHAR FROM ({sql})", directory)
            except ORDINARY as error:
                if any(told in str(error) for told in BROKEN):
                    raise Wrong(f"{sql}: {error}") from error
        self.seen += 1
        for sql in (SHORT, LONG) if self.seen % LONG_EVERY == 0 else (SHORT,):
            answer = self.fetch(sql, self.sound)
            if answer != self.answers[sql]:
                raise Wrong(f"of the sound directory {answer}, not {self.answers[sql]}: {sql}")


def main():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    extension, folder, *options = sys.argv[1:]
    looker = Looker(extension, Path(folder))

    @ctypes.CFUNCTYPE(None, ctypes.c_char_p)
    def look(directory):
        try:
            looker.look(os.fsdecode(directory))
        except BaseException:
            # Nothing that is raised passes through the fuzzer.
            traceback.print_exc()
            sys.stderr.flush()
            os.abort()

    words = [sys.argv[0], *options]
    argv = (ctypes.c_char_p * (len(words) + 1))(*map(os.fsencode, words), None)
    # The library is loaded already: this names it.
    library = ctypes.CDLL(extension)
    library.loom_fuzz(len(words), argv, os.fsencode(folder), look)


main()
