"""The DuckDB behind the page: it reads the given directories, and nothing else.

The settings are locked before the first query. A query is one SELECT by DuckDB's own parser, runs in a transaction that cannot write, and
is interrupted when its caller gives up. `workers` has one in each of its processes.
"""

import threading
import time
from pathlib import Path

import duckdb

import loom_duckdb
from loom_duckdb.connection import quoted
from loom_duckdb.explore import limits
from loom_duckdb.explore.answer import Answer, collect

_INTERRUPT_EVERY_S = 0.01


class RefusedError(Exception):
    """The text is not one SELECT statement."""


class Database:
    """A DuckDB in memory with Loom loaded, closed to every file outside `directories`."""

    def __init__(self, directories: list[Path]) -> None:
        """Open it. Raises RuntimeError or duckdb.Error if the extension cannot be loaded."""
        self.directories = directories
        self._connection = loom_duckdb.connect()
        for setting in (
            "TimeZone = 'UTC'",
            f"memory_limit = {quoted(limits.DUCKDB_MEMORY)}",
            # With replacements, `FROM name` could read a variable of this process.
            "python_enable_replacements = false",
        ):
            self._connection.execute(f"SET {setting}")
        self._connection.execute(loom_duckdb.lock_sql(directories))

    def run(self, sql: str, stop: threading.Event) -> Answer:
        """Run one SELECT, until `stop` is set. Raises RefusedError, or duckdb.Error as DuckDB words it."""
        cursor = self._connection.cursor()
        ended = threading.Event()
        watch = threading.Thread(target=_interrupt_when_stopped, args=(stop, ended, cursor), daemon=True)
        watch.start()
        try:
            _check(cursor, sql)
            # A SELECT can contain an INSERT in a WITH, which this transaction refuses too.
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            began = time.perf_counter()
            relation = cursor.sql(sql)
            answer = collect(relation, stop)
            answer.ms = round((time.perf_counter() - began) * 1000, 1)
            return answer
        finally:
            ended.set()
            watch.join()
            cursor.close()


def _check(cursor: duckdb.DuckDBPyConnection, sql: str) -> None:
    statements = cursor.extract_statements(sql)
    if len(statements) != 1:
        raise RefusedError(f"a query is one statement, not {len(statements)}; send one SELECT")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise RefusedError(f"a query only reads, and {kind.name} is refused; send a SELECT")


def _interrupt_when_stopped(stop: threading.Event, ended: threading.Event, cursor: duckdb.DuckDBPyConnection) -> None:
    # An interrupt that comes between two steps of a query is lost, so it is repeated.
    while not ended.wait(_INTERRUPT_EVERY_S):
        if stop.is_set():
            cursor.interrupt()
