"""The processes that run queries, so that no query can end the server. Each has a database of its own and bounded memory.

Workers start ahead of the queries that need them. A worker ends if it runs out of memory, or if it keeps much memory after a query; another
one replaces it. A stopped query is interrupted; if it still runs, its worker is killed.
"""

import atexit
import contextlib
import multiprocessing
import os
import resource
import signal
import threading
import time
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from queue import LifoQueue, SimpleQueue
from typing import NamedTuple

import duckdb

from loom_duckdb.explore import limits
from loom_duckdb.explore.database import Database, RefusedError

_LOOK_EVERY_S = 0.01
_GRACE_S = 2
# A process forked from one with threads may hang.
_CONTEXT = multiprocessing.get_context("spawn")
# A process prints an error if the server ends in the middle of its start.
_STARTING = threading.Lock()
atexit.register(_STARTING.acquire)


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
        """Start the first one, and the others while it works. Raises RuntimeError if its database cannot be opened."""
        # Arrow's own allocator maps 1 GiB with its first value, which would count as memory that a worker keeps.
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        self.directories = directories
        self._idle: LifoQueue[_Worker | None] = LifoQueue()
        self._idle.put(_Worker(directories))
        threading.Thread(target=self._add, args=(limits.QUERIES_AT_ONCE - 1,), daemon=True).start()

    def _add(self, count: int) -> None:
        """Start workers one after the other. The query that gets None reports why one cannot start."""
        for _ in range(count):
            try:
                worker = _Worker(self.directories)
            except (RuntimeError, OSError):
                worker = None
            self._idle.put(worker)

    def run(self, query: Query) -> bytes:
        """Run one SELECT, and return the answer as JSON. Raises RefusedError, QueryError, or InterruptedError if it was stopped."""
        worker = self._idle.get()
        try:
            worker = worker if worker and worker.is_alive() else _Worker(self.directories)
            return worker.run(query)
        finally:
            if worker and worker.is_alive():
                self._idle.put(worker)
            else:
                threading.Thread(target=self._add, args=(1,), daemon=True).start()


class _Worker:
    def __init__(self, directories: list[Path]) -> None:
        self._pipe, there = _CONTEXT.Pipe()
        self._process = _CONTEXT.Process(target=_serve, args=(there, directories), daemon=True)
        # Ctrl-C in the terminal is for the server, whose end closes the pipe. The process begins with this mask, which the tracker of
        # resources would lift if it had to be started.
        resource_tracker.ensure_running()
        with _STARTING:
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            try:
                self._process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        there.close()
        if error := self._receive().error:
            raise RuntimeError(str(error))

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def run(self, query: Query) -> bytes:
        # The answer of a worker that has just died says so.
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(query.sql)
        killed_at = None
        while not self._pipe.poll(_LOOK_EVERY_S):
            if query.stopped.is_set() and killed_at is None:
                with contextlib.suppress(BrokenPipeError):
                    self._pipe.send(None)
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


def _serve(pipe: Connection, directories: list[Path]) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (limits.WORKER_BYTES_MAX, limits.WORKER_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        database = Database(directories)
    except (RuntimeError, duckdb.Error) as error:
        pipe.send(_Reply(RuntimeError(str(error)), is_last=True))
        return
    queries: SimpleQueue[str | None] = SimpleQueue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(pipe, queries, stop), daemon=True).start()
    # The server may end at any time.
    with contextlib.suppress(BrokenPipeError):
        pipe.send(_Reply())
        while (sql := queries.get()) is not None:
            reply = _reply(database, sql, stop)
            pipe.send(reply)
            if reply.is_last:
                break


def _listen(pipe: Connection, queries: SimpleQueue[str | None], stop: threading.Event) -> None:
    """Pass on queries, and None when the server has ended. A None from the server stops the query that runs, if one still does."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            sql = pipe.recv()
            if sql is None:
                stop.set()
            else:
                stop.clear()
                queries.put(sql)
    stop.set()
    queries.put(None)


def _reply(database: Database, sql: str, stop: threading.Event) -> _Reply:
    answer, error = b"", None
    try:
        answer = database.run(sql, stop).json()
    except RefusedError as refused:
        error = refused
    except (duckdb.OutOfMemoryException, MemoryError):
        # DuckDB advises settings that a query cannot change.
        error = QueryError(f"the query needed more memory than {limits.DUCKDB_MEMORY}; choose a shorter window")
    except (duckdb.Error, OSError, ValueError, OverflowError, RecursionError) as failed:
        error = QueryError(str(failed) or type(failed).__name__)
    return _Reply(error, answer, is_last=_data_bytes() > limits.WORKER_BYTES_MAX // 2)


def _data_bytes() -> int:
    """Return the memory that counts towards the limit. DuckDB and the C library keep memory that a query has freed."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
