"""The tools: each writes one question in SQL and returns the answer, its cost, what is lost in its window, and the SQL.

The descriptions here are what an agent reads.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from loom_duckdb.connection import quoted
from loom_duckdb.explore.limits import SQL_BYTES_MAX
from loom_duckdb.mcp.asking import FAR, ROWS_MAX, Asker, Window, instant, written
from loom_duckdb.parameters import Typed, constant, identifier, parameters
from loom_duckdb.pinning import PinError
from loom_duckdb.pinning import pin as keep

_INSTRUCTIONS = """\
Loom directories hold complete telemetry: every record of every source (requests, system calls, packets, spans, metrics) on one clock, live.
Start with `sources`, then `describe` a source. `quantiles` and `heat` answer from summaries; `top` returns the slowest records;
`why` says in which fields a selection differs from the rest; `near` shows what other sources saw at the times of some records;
`trace` collects a trace. `sql` runs a SELECT in DuckDB with Loom's functions. Retention removes old records; `pin` keeps those of a time.
Each answer has the SQL that made it and the ms that it took; one with a window has what is known to be lost in it.
Times are UTC; a window is half open."""

_NOT_FIELDS = ("source", "ts", "ts_ns", "addr", "dir")
_TIMES_MAX = 1000
_TRACE_SPANS_MAX = 150
# `why` shows so many even if fewer rows are wanted: the sources of metrics may be many.
_OTHER_SOURCES_MAX = 50

Dir = Annotated[str | None, Field(description="the path of the directory; may be omitted if one directory is served")]
Source = Annotated[str, Field(description="the name of a source, as `sources` lists it")]
Index = Annotated[str, Field(description="the name of an index of the source, as `describe` lists it")]
From = Annotated[str | None, Field(description="the first time, such as 2026-03-01T10:00:00Z; omitted: the first record")]
To = Annotated[str | None, Field(description="the end, exclusive; omitted: the newest record, which is included")]
Last = Annotated[str | None, Field(description="instead of t_from: the length of the window before t_to, such as '5 minutes'")]
Filter = Annotated[
    str | None,
    Field(
        description="only records that match, such as: op = 'GET' AND latency_ns > 1000000. It has =, <>, <, <=, >, >=, IN, BETWEEN, "
        "IS NULL, AND, OR, NOT, with a field on one side and a constant on the other"
    ),
]


def server(asker: Asker, *, allow_pins: bool) -> MCPServer:
    """Make the server for an asker."""
    app = MCPServer("loom", instructions=_INSTRUCTIONS, log_level="WARNING")
    reads = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    def tool(ask: Callable[..., str]) -> Callable[..., str]:
        return app.tool(annotations=reads, structured_output=False)(ask)

    def about(answer: dict[str, Any], window: Window, source: str, cost: dict[str, Any] | None = None) -> str:
        """Add the cost and the losses to an answer."""
        return written(answer | ({} if cost is None else {"estimate": cost}) | {"losses": asker.losses(window, source)})

    @tool
    def sources(dir: Dir = None) -> str:
        """List the sources of a directory: their records, their first and last times, and their indexes."""
        path = quoted(asker.directory(dir))
        answer = asker.answer(
            f"SELECT name AS source, records, first_ts, last_ts, (SELECT to_json(list(index ORDER BY index))::VARCHAR "
            f"FROM loom_indexes({path}) AS i WHERE i.source = s.name AND i.state = 'open') AS indexes "
            f"FROM loom_sources({path}) AS s ORDER BY name",
            lists=("indexes",),
        )
        return written(answer | {"dir": asker.directory(dir), "dirs": asker.directories})

    @tool
    def describe(source: Source, dir: Dir = None) -> str:
        """Describe a source: its fields with types and values of recent records, its indexes, and what is lost in all of its time."""
        path = asker.directory(dir)
        window = asker.window(path, source, None, None, None)
        columns = [column for column in asker.columns(path, source) if column[0] not in _NOT_FIELDS]
        recent = f"COLUMNS(* EXCLUDE ({', '.join(_NOT_FIELDS)}))::VARCHAR"
        # A row for each field, so that an answer about a wide source loses its last fields and not its only row.
        sql = (
            f'FROM (SELECT to_json(approx_top_k(left({recent}, 40), 5))::VARCHAR AS "\\0" '
            f"FROM loom_tail({quoted(path)}, {quoted(source)}, 2000)) "
            f"UNPIVOT INCLUDE NULLS (frequent FOR field IN (COLUMNS(*)))"
        )
        values = asker.answer(sql, lists=("frequent",))["rows"] if columns else []
        own = f"source = {quoted(source)} AND state = 'open'"
        indexes = asker.answer(f"SELECT index, value, filter FROM loom_indexes({quoted(path)}) WHERE {own} ORDER BY index")
        fields = [[name, kind, most] for (name, kind), (_, most) in zip(columns, values, strict=False)]
        answer = {"columns": ["field", "type", "frequent values of the newest 2000 records"], "rows": fields}
        answer["indexes"] = [dict(zip(indexes["columns"], row, strict=True)) for row in indexes["rows"]]
        if len(fields) < len(columns):
            all_of_them = f"SELECT column_name, column_type FROM (DESCRIBE FROM loom_scan({quoted(path)}, {quoted(source)}))"
            answer["more"] = f"{len(fields)} of {len(columns)} fields are shown; `sql` lists all: {all_of_them}"
        times = {"first": instant(window.from_us), "end": instant(window.to_us)}
        return about(answer | times | {"sql": sql, "ms": indexes["ms"]}, window, source)

    @tool
    def quantiles(
        source: Source,
        index: Index,
        buckets: Annotated[int, Field(ge=1, le=ROWS_MAX, description="1: one row for the window; more: at most so many spans of it")] = 1,
        t_from: From = None,
        t_to: To = None,
        last: Last = None,
        filter: Filter = None,
        dir: Dir = None,
    ) -> str:
        """Count an index's values exactly, with min, max, average and quantiles up to p99.99, for a window or over time."""
        window = asker.window(asker.directory(dir), source, t_from, t_to, last)
        options = {"points": buckets if buckets > 1 else None, "quantiles": [0.5, 0.9, 0.99, 0.999, 0.9999], "filter": filter}
        cost = asker.cost([window], source, "quantiles", index=index, **options)
        return about(asker.answer(f"FROM loom_aggregate({_call(window, source, index, **options)})"), window, source, cost)

    @tool
    def heat(
        source: Source,
        index: Index,
        points: Annotated[int, Field(ge=1, le=60, description="at most so many spans of time")] = 12,
        bands: Annotated[int, Field(ge=1, le=40, description="at most so many ranges of values")] = 12,
        t_from: From = None,
        t_to: To = None,
        last: Last = None,
        filter: Filter = None,
        dir: Dir = None,
    ) -> str:
        """Count an index's values in cells of time and value, exactly: from t1 to t2, from lower to upper. Empty cells are omitted."""
        window = asker.window(asker.directory(dir), source, t_from, t_to, last)
        options = {"points": points, "filter": filter}
        cost = asker.cost([window], source, "aggregate", index=index, **options)
        sql = f"FROM loom_heat({_call(window, source, index, **options, bands=bands)}) ORDER BY t1, lower"
        return about(asker.answer(sql), window, source, cost)

    @tool
    def top(
        source: Source,
        index: Index,
        n: Annotated[int, Field(ge=1, le=ROWS_MAX)] = 10,
        least: Annotated[bool, Field(description="true: the records with the least values")] = False,
        t_from: From = None,
        t_to: To = None,
        last: Last = None,
        filter: Filter = None,
        dir: Dir = None,
    ) -> str:
        """Return the n records with the greatest values of an index, such as the slowest requests, the greatest first."""
        window = asker.window(asker.directory(dir), source, t_from, t_to, last)
        options = {"filter": filter, "least": True if least else None}
        # Without a filter, summaries have the bin of the last of the n values, and only chunks with values as great are read.
        bound = {} if filter is not None else _edge(asker, window, source, index, n, least=least)
        cost = asker.cost([window], source, "scan", index=index, filter=filter, **bound)
        sql = f"SELECT * EXCLUDE (source, addr, dir) FROM loom_top({_call(window, source, index, Typed(str(n)), **options)})"
        return about(asker.answer(sql), window, source, cost)

    @tool
    def why(
        source: Source,
        t_from: Annotated[str, Field(description="the first time of the selection, such as 2026-03-01T10:00:00Z")],
        t_to: Annotated[str, Field(description="the end of the selection, exclusive")],
        index: Annotated[str | None, Field(description="the index whose values are selected; omitted: all records of the time")] = None,
        v_min: Annotated[float | None, Field(description="the least selected value of the index")] = None,
        v_max: Annotated[float | None, Field(description="the greatest selected value of the index")] = None,
        against: Annotated[
            Literal["rest", "before", "window"],
            Field(description="compare with the other records of the time, with as long a time before, or with all records of the time"),
        ] = "rest",
        n: Annotated[int, Field(ge=1, le=ROWS_MAX)] = 20,
        filter: Filter = None,
        dir: Dir = None,
    ) -> str:
        """Compare selected records with others in every field: which values or ranges separate them, by score in bits of evidence.

        A score of 0 may be coincidence. `filter` of a row selects its records. Rows of kind `source` compare the other sources with before.
        """
        window = asker.window(asker.directory(dir), source, t_from, t_to, None)
        length = window.to_us - window.from_us if against == "before" else 0
        cost = asker.cost([Window(window.dir, window.from_us - length, window.to_us)], source, "scan", filter=filter)
        ends = [Typed(f"{quoted(instant(us))}::TIMESTAMPTZ") for us in (window.from_us, window.to_us)]
        arguments = [window.dir, source, index, *ends, _number(v_min), _number(v_max)]
        call = ", ".join("NULL" if value is None else constant(value) for value in arguments)
        options = parameters({"against": against, "filter": filter})
        # The other sources come first, because an answer that is too large loses its last rows.
        sql = (
            f"WITH found AS MATERIALIZED (FROM loom_why({call}{options})), fields AS (FROM found WHERE kind <> 'source') "
            f"SELECT source, field, kind, value, selected, round(selected_share, 4) AS selected_share, other, "
            f"round(other_share, 4) AS other_share, round(score, 1) AS score, filter, rate, rate_before, p99, p99_before, "
            f"(SELECT count(DISTINCT field) FROM fields) AS fields_compared, (SELECT count(*) FROM found) AS rows_found FROM found "
            f"QUALIFY row_number() OVER (PARTITION BY kind = 'source' ORDER BY score DESC) "
            f"<= CASE kind WHEN 'source' THEN {_OTHER_SOURCES_MAX} ELSE {n} END ORDER BY kind <> 'source', score DESC"
        )
        answer = asker.answer(sql)
        del answer["columns"][-2:]
        answer["rows"].sort(key=lambda row: row[2] == "source")
        totals = [(row.pop(-2), row.pop()) for row in answer["rows"]]
        compared, found = totals[0] if totals else (0, 0)
        if len(totals) < found:
            answer["more"] = f"{len(totals)} of {found} rows are shown: the greatest scores of the fields, and of the other sources"
        return about(answer | {"fields_compared": compared}, window, source, cost)

    @tool
    def near(
        source: Annotated[str, Field(description="the source whose records to return")],
        times: Annotated[list[str], Field(min_length=1, max_length=_TIMES_MAX, description="times (ts) of the records of another source")],
        width: Annotated[str, Field(description="how far before and after each time, such as '1 ms' or '20 ms'")] = "1 ms",
        index: Annotated[
            str | None, Field(description="return the greatest values of this index at each time; omitted: the nearest")
        ] = None,
        n: Annotated[int, Field(ge=1, le=ROWS_MAX, description="the most records for each time")] = 5,
        rare: Annotated[
            list[str] | None, Field(description="fields: only records whose values of these occur once among all that are near")
        ] = None,
        filter: Filter = None,
        dir: Dir = None,
    ) -> str:
        """Return records of a source near some times: `hit` is the time, and `near_hit` counts all records near it."""
        path = asker.directory(dir)
        known = [name for name, _ in asker.columns(path, source)]
        if unknown := [name for name in rare or [] if name not in known]:
            fields = ", ".join(name for name in known if name not in _NOT_FIELDS)
            raise ToolError(f"the source '{source}' has no field '{unknown[0]}'; its fields are: {fields}")
        hits = f"[{', '.join(map(quoted, times))}]::TIMESTAMPTZ[]"
        spans = asker.rows(
            f"SELECT epoch_us(t - {quoted(width)}::INTERVAL) AS first, epoch_us(t + {quoted(width)}::INTERVAL) AS end "
            f"FROM (SELECT unnest({hits}) AS t) ORDER BY t"
        )
        if any(None in span.values() for span in spans):
            raise ToolError(FAR)
        windows = _joined(path, [(int(span["first"]), int(span["end"])) for span in spans])
        window = Window(path, windows[0].from_us, windows[-1].to_us)
        order = "abs(epoch_us(since_hit))"
        if index is not None:
            named = f"source = {quoted(source)} AND index = {quoted(index)} AND state = 'open'"
            found = asker.rows(f"SELECT value FROM loom_indexes({quoted(path)}) WHERE {named}")
            if not found:
                raise ToolError(f"no open index '{index}' of the source '{source}'; `describe` lists the indexes")
            order = f"{identifier(found[0]['value'])} DESC"
        cost = asker.cost(windows, source, "scan", filter=filter)
        call = f"loom_near({constant(path)}, {constant(source)}, {hits}, INTERVAL {quoted(width)}{parameters({'filter': filter})})"
        once = f" QUALIFY count(*) OVER (PARTITION BY {', '.join(map(identifier, rare))}) = 1" if rare else ""
        sql = (
            f"SELECT hit, epoch_us(since_hit) AS since_hit_us, near_hit, * EXCLUDE (hit, since_hit, near_hit, source, addr, dir) "
            f"FROM (SELECT *, count(*) OVER (PARTITION BY hit) AS near_hit FROM {call}{once}) "
            f"QUALIFY row_number() OVER (PARTITION BY hit ORDER BY {order}, ts_ns) <= {n} ORDER BY hit, {order}, ts_ns"
        )
        return about(asker.answer(sql), window, source, cost)

    @tool
    def trace(
        trace_id: Annotated[str, Field(description="the id, as the field trace_id of spans or logs has it")],
        t_from: From = None,
        t_to: To = None,
        last: Last = None,
        dir: Dir = None,
    ) -> str:
        """Return a trace's spans in order, its log records, and the number of records of each other source in its time."""
        path = asker.directory(dir)
        window = asker.window(path, "spans", t_from, t_to, last)
        chosen = f"trace_id = {quoted(trace_id)}"
        cost = asker.cost([window], "spans", "scan", filter=chosen)
        spans = asker.answer(
            f"SELECT ts, ts_ns, duration_ns, service, name, kind, status, status_message, span_id, parent_span_id "
            f"FROM loom_scan({quoted(path)}, 'spans'{window.parameters()}, filter := {quoted(chosen)}) "
            f"ORDER BY ts_ns LIMIT {_TRACE_SPANS_MAX}"
        )
        if not spans["rows"]:
            raise ToolError(
                f"no span of the trace '{trace_id}' from {instant(window.from_us)} to {instant(window.to_us)}; SQL: {spans['sql']}"
            )
        first, end = (min(int(row[1]) for row in spans["rows"]), max(int(row[1]) + int(row[2] or 0) for row in spans["rows"]))
        held = Window(path, first // 1000, end // 1000 + 1)
        others = [
            row["name"] for row in asker.rows(f"SELECT name FROM loom_sources({quoted(path)}) WHERE first_ts IS NOT NULL ORDER BY name")
        ]
        counts = " UNION ALL ".join(
            f"SELECT {quoted(name)} AS source, count(*) AS records FROM loom_scan({quoted(path)}, {quoted(name)}{held.parameters()})"
            for name in others
            if not name.startswith(("loom_", "metrics/")) and name != "spans"
        )
        answer = {"spans": spans}
        if "logs" in others:
            answer["logs"] = asker.answer(
                f"SELECT ts, severity, service, span_id, body "
                f"FROM loom_scan({quoted(path)}, 'logs'{held.parameters()}, filter := {quoted(chosen)}) ORDER BY ts_ns",
                50,
            )
        if counts:
            answer["other_sources_in_this_time"] = asker.answer(counts)
        return about(answer, held, "spans", cost)

    @tool
    def sql(
        query: Annotated[
            str,
            Field(
                description="one SELECT in DuckDB's SQL, such as: SELECT op, count(*) FROM loom_scan(dir, source, "
                "last := INTERVAL 1 MINUTE, filter := '…') GROUP BY op; name the directory by its path, and bound the time"
            ),
        ],
    ) -> str:
        """Run one SELECT with Loom's functions. It reads only the served directories; rows, bytes and time are limited."""
        if len(query.encode(errors="replace")) > SQL_BYTES_MAX:
            raise ToolError(f"the query is longer than {SQL_BYTES_MAX} bytes; send a shorter one")
        return written(asker.answer(query))

    def pin(
        t_from: From = None,
        t_to: Annotated[str | None, Field(description="the end, exclusive; omitted: now")] = None,
        last: Last = None,
        sources: Annotated[list[str] | None, Field(description="the names of the sources; omitted: all")] = None,
        name: Annotated[str, Field(description="a name for the pin, such as that of the incident")] = "agent",
        dir: Dir = None,
    ) -> str:
        """Keep the records that arrived in a time, so that retention does not remove them. Old pins go if all take too much."""
        path = asker.directory(dir)
        if (t_from is None) == (last is None):
            raise ToolError("a pin needs the begin of its time; give t_from or last, and not both")
        end = "now()" if t_to is None else f"{quoted(t_to)}::TIMESTAMPTZ"
        begin = f"{quoted(t_from)}::TIMESTAMPTZ" if last is None else f"{end} - {quoted(str(last))}::INTERVAL"
        (span,) = asker.rows(f"SELECT epoch_us({begin}) AS from_us, epoch_us({end}) AS to_us")
        try:
            return written(keep(Path(path), span["from_us"], span["to_us"], name, sources or []))
        except PinError as error:
            raise ToolError(str(error)) from error

    if allow_pins:
        app.tool(annotations=ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False), structured_output=False)(
            pin
        )
    return app


def _edge(asker: Asker, window: Window, source: str, index: str, n: int, *, least: bool) -> dict[str, Any]:
    """Return the bound of an index that its n greatest or least values keep, as a parameter: the value itself, or an end of its bin."""
    bound, value, end, order = ("v_max", "min", "upper", "bin") if least else ("v_min", "max", "lower", "bin DESC")
    call = _call(window, source, index)
    if n == 1:
        sql = f"SELECT {value}::VARCHAR AS edge, typeof({value}) AS kind FROM loom_aggregate({call})"
    else:
        sql = (
            f"SELECT {end}::VARCHAR AS edge, typeof({end}) AS kind FROM loom_histogram({call}) "
            f"QUALIFY sum(count) OVER (ORDER BY {order}) >= least({n}, sum(count) OVER ()) ORDER BY {order} LIMIT 1"
        )
    found = asker.rows(sql)
    if not found or found[0]["edge"] is None:
        return {}
    return {bound: Typed(f"{quoted(found[0]['edge'])}::{found[0]['kind']}")}


def _joined(dir: str, spans: list[tuple[int, int]]) -> list[Window]:
    """Join spans that meet; they are in the order of time and have one length."""
    joined: list[Window] = []
    for first, end in spans:
        meets = joined and first <= joined[-1].to_us
        begin = joined.pop().from_us if meets else first
        joined.append(Window(dir, begin, end))
    return joined


def _number(value: float | None) -> Typed | None:
    """Write a bound of an index, whole if it is and fits into 64 bits."""
    if value is None:
        return None
    return Typed(str(int(value)) if abs(value) < 2**63 and value == int(value) else constant(value))


def _call(window: Window, source: str, index: str, *more: Any, **options: Any) -> str:
    """Write the arguments of a function of an index."""
    first = ", ".join(map(constant, (window.dir, source, index, *more)))
    return f"{first}{window.parameters()}{parameters(options)}"
