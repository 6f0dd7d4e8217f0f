"""The processes that run queries, so that no query can end the server. Each has a database of its own and bounded memory.

A worker ends if it runs out of memory, or if it keeps much memory after a query; the next query gets a new worker. A stopped query is
interrupted; if it still runs, its worker is killed.
"""

import multiprocessing
import resource
import signal
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import LifoQueue
from typing import NamedTuple

import duckdb

from loom_duckdb.explore import limits
from loom_duckdb.explore.database import Database, RefusedError

_LOOK_EVERY_S = 0.05
_GRACE_S = 2
# A process forked from one with threads may hang.
_CONTEXT = multiprocessing.get_context("spawn")


class QueryError(Exception):
    """A failed query, with DuckDB's message."""


class Query:
    """One query of one caller. `stop` may come from another thread, before it starts, while it runs or after it ended."""

    def __init__(self, sql: str) -> None:
        """Store the text; the worker's database checks it."""
        self.sql = sql
        self.stopped = threading.Event()

    def stop(self) -> None:
        """End the query soon."""
        self.stopped.set()


class Workers:
    """Up to `QUERIES_AT_ONCE` processes. The one used last is reused first, because its caches are warm."""

    def __init__(self, directories: list[Path]) -> None:
        """Start the first one. Raises RuntimeError if its database cannot be opened."""
        self.directories = directories
        self._idle: LifoQueue[_Worker | None] = LifoQueue()
        for _ in range(limits.QUERIES_AT_ONCE - 1):
            self._idle.put(None)
        self._idle.put(_Worker(directories))

    def run(self, query: Query) -> bytes:
        """Run one SELECT, and return the answer as JSON. Raises RefusedError, QueryError, or InterruptedError if it was stopped."""
        worker = self._idle.get()
        try:
            worker = worker or _Worker(self.directories)
            return worker.run(query)
        finally:
            self._idle.put(worker if worker and worker.is_alive() else None)


class _Worker:
    def __init__(self, directories: list[Path]) -> None:
        self._pipe, there = _CONTEXT.Pipe()
        self._stop = _CONTEXT.Event()
        self._process = _CONTEXT.Process(target=_serve, args=(there, self._stop, directories), daemon=True)
        self._process.start()
        there.close()
        if error := self._receive().error:
            raise RuntimeError(str(error))

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def run(self, query: Query) -> bytes:
        self._stop.clear()
        self._pipe.send(query.sql)
        killed_at = None
        while not self._pipe.poll(_LOOK_EVERY_S):
            if query.stopped.is_set() and killed_at is None:
                self._stop.set()
                killed_at = time.monotonic() + _GRACE_S
            if killed_at is not None and time.monotonic() >= killed_at:
                self._process.kill()
        reply = self._receive()
        if reply.error:
            raise reply.error
        return reply.answer

    def _receive(self) -> "_Reply":
        try:
            reply = self._pipe.recv()
        except (EOFError, OSError):
            ended = f"the query needed more memory than {limits.WORKER_BYTES_MAX >> 20} MiB, or was stopped; choose a shorter window"
            reply = _Reply(QueryError(ended), is_last=True)
        if reply.is_last:
            self._process.join()
        return reply


class _Reply(NamedTuple):
    error: Exception | None = None
    answer: bytes = b""
    is_last: bool = False


def _serve(pipe: Connection, stop: Event, directories: list[Path]) -> None:
    # Ctrl-C in the terminal is for the server, whose end closes the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (limits.WORKER_BYTES_MAX, limits.WORKER_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        database = Database(directories)
    except (RuntimeError, duckdb.Error) as error:
        pipe.send(_Reply(RuntimeError(str(error)), is_last=True))
        return
    pipe.send(_Reply())
    reply = _Reply()
    while not reply.is_last:
        try:
            reply = _reply(database, pipe.recv(), stop)
        except EOFError:
            return
        pipe.send(reply)


def _reply(database: Database, sql: str, stop: Event) -> _Reply:
    answer, error = b"", None
    try:
        answer = database.run(sql, stop).json()
    except RefusedError as refused:
        error = refused
    except (duckdb.Error, OSError, MemoryError, ValueError, OverflowError, RecursionError) as failed:
        error = QueryError(str(failed) or type(failed).__name__)
    return _Reply(error, answer, is_last=_data_bytes() > limits.WORKER_BYTES_MAX // 2)


def _data_bytes() -> int:
    """Return the memory that counts towards the limit. DuckDB and the C library keep memory that a query has freed."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
