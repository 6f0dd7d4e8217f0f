"""Runs the SQL of a tool within limits, and makes an answer that is small enough for an agent.

A question has a directory and, for most tools, a window of time. `Asker.window` fixes it to two instants, so that the SQL of an answer
gives the same answer later, while records still arrive.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from loom_duckdb.connection import quoted
from loom_duckdb.explore.database import RefusedError
from loom_duckdb.explore.limits import SQL_BYTES_MAX
from loom_duckdb.explore.workers import Query, QueryError, Workers
from loom_duckdb.parameters import parameters

ROWS_MAX = 200
ANSWER_BYTES_MAX = 24 * 1024
CELL_CHARACTERS_MAX = 400
# A question that would read more is refused before it starts.
READ_BYTES_MAX = 4 * 1024**3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FAR = "the window begins or ends outside of the years 1 to 9999; give a nearer time"


@dataclass(frozen=True)
class Window:
    """A half-open span of time in a directory, in microseconds since 1970."""

    dir: str
    from_us: int
    to_us: int

    def parameters(self) -> str:
        """Write it as named parameters of a function."""
        return f", t_from := {quoted(instant(self.from_us))}, t_to := {quoted(instant(self.to_us))}"


class Asker:
    """Asks the directories of `workers`. Several threads may call it."""

    def __init__(self, workers: Workers, timeout_s: float) -> None:
        """Stop each query after `timeout_s`."""
        self._workers, self._timeout_s = workers, timeout_s
        self.directories = [str(directory) for directory in workers.directories]

    def directory(self, given: str | None) -> str:
        """Return the directory that a question means."""
        if given is None and len(self.directories) == 1:
            return self.directories[0]
        if given in self.directories:
            return str(given)
        what = "several directories are served" if given is None else f"the directory '{given}' is not served"
        raise ToolError(f"{what}; set dir to one of: {', '.join(self.directories)}")

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Run a SELECT for the server's own use."""
        answer = self._run(sql)
        return [dict(zip(answer["names"], row, strict=True)) for row in zip(*answer["columns"], strict=True)]

    def columns(self, dir: str, source: str) -> list[tuple[str, str]]:
        """Return the names and types of a source's columns."""
        answer = self._run(f"FROM loom_scan({quoted(dir)}, {quoted(source)}, t_to := '1970-01-01 00:00:00+00') LIMIT 0")
        return list(zip(answer["names"], answer["types"], strict=True))

    def answer(self, sql: str, n: int = ROWS_MAX, lists: tuple[str, ...] = ()) -> dict[str, Any]:
        """Run a SELECT, and return at most `n` of its rows with the SQL and the time that it took. Columns of `lists` have JSON."""
        found = self._run(sql)
        size = len(written(found["names"]).encode())
        if size > ANSWER_BYTES_MAX:
            raise ToolError(
                f"the names of the {len(found['names'])} columns alone have {size} bytes, more than {ANSWER_BYTES_MAX}; ask for fewer"
            )
        named = zip(found["names"], found["types"], found["columns"], strict=True)
        # A list is read before anything is cut, because a part of it is not JSON.
        shown = [
            [json.loads(value or "[]") for value in column[:n]] if name in lists else _shown(kind, column[:n])
            for name, kind, column in named
        ]
        rows = [list(row) for row in zip(*shown, strict=True)]
        total = len(found["columns"][0]) if found["columns"] else 0
        kept = 0
        for row in rows:
            size += len(written(row).encode()) + len(",")
            if size > ANSWER_BYTES_MAX:
                break
            kept += 1
        answer: dict[str, Any] = {"columns": found["names"], "rows": rows[:kept]}
        if kept < total or found["truncated"]:
            least = "more than " if found["truncated"] else ""
            answer["more"] = f"{kept} of {least}{total} rows are shown; ask for fewer, or for an aggregate"
        return answer | {"sql": sql, "ms": found["ms"]}

    def window(self, dir: str, source: str, t_from: str | None, t_to: str | None, last: str | None) -> Window:
        """Fix a window: what is omitted comes from the records of the source. Raises ToolError if it is empty."""
        if last is not None and t_from is not None:
            raise ToolError("last and t_from exclude each other; use one of them")
        known = self.rows(
            f"SELECT name, epoch_us(first_ts) AS first, epoch_us(least(last_ts, greatest(now(), first_ts))) + 1 AS newest "
            f"FROM loom_sources({quoted(dir)})"
        )
        held = next((row for row in known if row["name"] == source), None)
        if held is None:
            raise ToolError(f"no source '{source}' in {dir}; the sources are: {', '.join(row['name'] for row in known)}")
        if held["first"] is None:
            raise ToolError(f"the source '{source}' has no records")
        end = str(held["newest"]) if t_to is None else f"epoch_us({quoted(t_to)}::TIMESTAMPTZ)"
        begin = str(held["first"])
        if t_from is not None:
            begin = f"epoch_us({quoted(t_from)}::TIMESTAMPTZ)"
        elif last is not None:
            begin = f"epoch_us(make_timestamptz({end}) - {quoted(last)}::INTERVAL)"
        (ends,) = self.rows(f"SELECT {begin} AS from_us, {end} AS to_us")
        # An infinite time has no microseconds, and those of a far one come as text.
        if None in ends.values():
            raise ToolError(FAR)
        from_us, to_us = int(ends["from_us"]), int(ends["to_us"])
        begins, ends_at = instant(from_us), instant(to_us)
        if not from_us < to_us:
            raise ToolError(f"the window is empty: it begins at {begins} and ends at {ends_at}")
        return Window(dir, from_us, to_us)

    def cost(self, windows: Sequence[Window], source: str, operation: str, **options: Any) -> dict[str, Any]:
        """Estimate what a question reads in some windows; a chunk of several counts for each. Raises ToolError if it is too much."""
        calls = [
            f"SELECT * FROM loom_estimate({quoted(window.dir)}, {quoted(source)}{window.parameters()}{parameters(options)})"
            for window in windows
        ]
        chunks, size = 0, 0
        at_once = max(1, SQL_BYTES_MAX // 2 // max(len(call.encode()) for call in calls))
        for first in range(0, len(calls), at_once):
            found = self.rows(
                f"SELECT operation, sum(chunks)::BIGINT AS chunks, sum(bytes)::BIGINT AS bytes "
                f"FROM ({' UNION ALL '.join(calls[first : first + at_once])}) GROUP BY operation"
            )
            (estimate,) = (row for row in found if row["operation"] == operation)
            chunks += int(estimate["chunks"])
            size += int(estimate["bytes"])
        if size > READ_BYTES_MAX:
            raise ToolError(
                f"the question would read {size >> 20} MiB, more than {READ_BYTES_MAX >> 20} MiB; ask about a shorter window, or narrow "
                f"it by a filter or an index"
            )
        return {"chunks": chunks, "mib": round(size / 2**20, 1)}

    def losses(self, window: Window, source: str) -> list[dict[str, Any]] | str:
        """List what is known to be missing in a window of a source."""
        found = self.rows(
            f"SELECT coalesce(source, 'all sources') AS source, stage, reason, sum(records)::BIGINT AS records, "
            f"count(*) FILTER (records IS NULL) AS gaps_of_unknown_size FROM loom_losses({quoted(window.dir)}) "
            f"WHERE to_ts >= {quoted(instant(window.from_us))} AND from_ts < {quoted(instant(window.to_us))} "
            f"AND (source IS NULL OR source = {quoted(source)}) GROUP BY ALL ORDER BY ALL LIMIT 20"
        )
        return found or "none: every record of the window is here"

    def _run(self, sql: str) -> dict[str, Any]:
        query = Query(sql)
        clock = threading.Timer(self._timeout_s, query.stop)
        clock.start()
        try:
            return json.loads(self._workers.run(query))
        except (RefusedError, QueryError, RuntimeError, UnicodeError) as error:
            if query.stopped.is_set():
                raise ToolError(f"the query took longer than {self._timeout_s:g} s and was stopped; ask about a shorter window") from error
            raise ToolError(_reason(str(error), sql)) from error
        finally:
            clock.cancel()


def written(answer: object) -> str:
    """Write an answer, or a part of it, as short JSON."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def instant(us: int) -> str:
    """Write a time in microseconds since 1970 as ISO 8601. Raises ToolError if it lies outside of the years 1 to 9999."""
    try:
        time = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        raise ToolError(FAR) from None
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _reason(error: str, sql: str) -> str:
    """Shorten an error: DuckDB quotes the whole statement, which the caller has."""
    return f"{error.partition(chr(10) + chr(10) + 'LINE ')[0].strip()}\n\nSQL: {sql[:2000]}"


def _shown(kind: str, column: list[Any]) -> list[Any]:
    if kind.startswith("TIMESTAMP"):
        return [value if not isinstance(value, int) else _time(value) for value in column]
    return [value[:CELL_CHARACTERS_MAX] + "…" if isinstance(value, str) and len(value) > CELL_CHARACTERS_MAX else value for value in column]


def _time(us: int) -> str:
    try:
        return instant(us)
    except OverflowError:
        return "infinity" if us > 0 else "-infinity"
