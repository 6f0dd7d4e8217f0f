"""Loom as a data source of Spark 4: directories that the executors see, or hosts that `ingestd serve` serves.

    from loom_duckdb.spark import LoomDataSource

    spark.dataSource.register(LoomDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.read.format("loom").option("source", "request").load("/data/*.loom").where("latency_us > 40000")

The driver fixes a position of each directory when it plans, so tasks that run twice read the same. Spark checks every filter again:
what is pushed decides what is read, never the answer. Hosts need no Loom on the executors, only DuckDB with Quack.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from loom_duckdb.connection import connect, quoted
from loom_duckdb.fleet import Fleet
from loom_duckdb.parameters import identifier, parameters

ROWS = 100_000
SLICES_MAX = 10_000

# Spark's type for each of Arrow's that a scan has: Spark has no unsigned numbers and no nanoseconds.
TYPES = {
    "uint8": "SMALLINT",
    "uint16": "INT",
    "uint32": "BIGINT",
    "uint64": "DECIMAL(20,0)",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "STRING",
    "binary": "BINARY",
    "timestamp[ns]": "TIMESTAMP_NTZ",
}

# DuckDB's type for each of Arrow's that Spark then expects.
CASTS = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "decimal128(20, 0)": "DECIMAL(20,0)",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "timestamp[us]": "TIMESTAMP",
}


@dataclass(frozen=True)
class Place:
    """A directory, or a host by its name and address, and how to ask it."""

    name: str
    address: str | None = None
    token: str | None = field(default=None, repr=False)

    def call(self, function: str, *arguments: str, options: Mapping[str, Any] | None = None) -> str:
        """Write a call of `loom_…` on the directory, or of `host_…` on the host."""
        given = [quoted(each) for each in ([self.name] if self.address is None else []) + list(arguments)]
        prefix = "loom" if self.address is None else "host"
        return f"{prefix}_{function}({', '.join(given)}{parameters(options or {})})"

    def scan(self, source: str, options: Mapping[str, Any]) -> str:
        """Write a scan, whose column `place` names where the records come from."""
        without = " EXCLUDE (dir)" if self.address is None else ""
        return f"SELECT *{without}, {quoted(self.name)} AS place FROM {self.call('scan', source, options=options)}"

    def ask(self, question: str) -> Iterator[pyarrow.RecordBatch]:
        """Ask one question."""
        if self.address is not None:
            yield from Fleet({self.name: self.address}, self.token or "").batches(self.name, question, ROWS)
            return
        with connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            yield from db.execute(question).to_arrow_reader(ROWS)

    def rows(self, question: str) -> list[dict[str, Any]]:
        """Ask a question whose answer is small."""
        return [row for batch in self.ask(question) for row in batch.to_pylist()]


@dataclass
class Slice(InputPartition):
    """What one task reads: a place up to a position, and a part of the time."""

    place: Place
    options: dict[str, Any]


class LoomDataSource(DataSource):
    """The data source `loom`, and its options.

    `source`: the source, required. The path, or `dir`: a directory, a glob, or several between commas. `hosts`: in place of the path,
    `name=quack:localhost:9494` between commas, with `token` or `token_file`. `columns`: the columns, between commas; Spark does not
    pass on those of `select`, so without it each record is read whole. `slices`: parts of the time for each directory or host, 1.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "loom"

    def schema(self) -> str:
        """Return the columns of a scan, in Spark's types."""
        self._slices()
        place = self._places()[0]
        # An answer without rows has no batch, so a row of NULLs stands for the types.
        (batch,) = place.ask(f"SELECT found.* FROM (SELECT 1) LEFT JOIN ({place.scan(self._source(), {})} LIMIT 0) AS found ON true")
        known = {each.name: str(each.type) for each in batch.schema}
        chosen = _split(self.options.get("columns")) or list(known)
        if unknown := [name for name in chosen if name not in known]:
            raise ValueError(f"source {self._source()!r} has no column {unknown[0]!r}; it has {', '.join(known)}")
        return ", ".join(f"`{name}` {_spark(name, known[name])}" for name in chosen)

    def reader(self, schema: StructType) -> "LoomReader":
        """Return the reader of these columns."""
        return LoomReader(self._source(), self._places(), self._slices(), schema)

    def _slices(self) -> int:
        slices = self.options.get("slices", "1")
        if not slices.isascii() or not slices.isdigit() or not 1 <= int(slices) <= SLICES_MAX:
            raise ValueError(f"slices is {slices!r}; give a number from 1 to {SLICES_MAX}, such as .option('slices', '4')")
        return int(slices)

    def _source(self) -> str:
        source = self.options.get("source")
        if not source:
            raise ValueError("no source; give .option('source', 'NAME')")
        return source

    def _places(self) -> list[Place]:
        if hosts := _split(self.options.get("hosts")):
            token_file = self.options.get("token_file")
            token = Path(token_file).read_text(encoding="utf-8").split("\n")[0].strip() if token_file else self.options.get("token")
            if not token:
                raise ValueError("no token for the hosts; give .option('token_file', 'FILE')")
            named = [host.partition("=") for host in hosts]
            if wrong := [host for host, (_, _, address) in zip(hosts, named, strict=True) if not address.startswith("quack:")]:
                raise ValueError(f"{wrong[0]!r} is not a host; write name=quack:localhost:9494")
            return [Place(name, address, token) for name, _, address in named]
        directories = _split(self.options.get("path") or self.options.get("dir"))
        if not directories:
            raise ValueError("no directory and no host; give .load('DIR') or .option('hosts', 'name=quack:localhost:9494')")
        listed = f"[{', '.join(map(quoted, directories))}]"
        with connect() as db:
            found = db.execute("SELECT dir FROM loom_sources(" + listed + ") WHERE name = ? ORDER BY dir", [self._source()]).fetchall()
        if not found:
            raise ValueError(f"no source {self._source()!r} in {', '.join(directories)}")
        return [Place(directory) for (directory,) in found]


class LoomReader(DataSourceReader):
    """Plans the slices and reads them. What `pushFilters` learns goes into every slice."""

    def __init__(self, source: str, places: Sequence[Place], slices: int, schema: StructType) -> None:
        """Take what to read; read nothing."""
        self.source, self.places, self.slices, self.schema = source, places, slices, schema
        self.bounds: dict[str, tuple[Any, Any]] = {}

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Keep the bounds of each column; Spark checks all filters again."""
        for each in filters:
            if isinstance(each, (EqualTo, In, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)) and len(each.attribute) == 1:
                name = each.attribute[0]
                least, greatest = _bounds(each)
                old_least, old_greatest = self.bounds.get(name, (None, None))
                self.bounds[name] = (_tighter(max, least, old_least), _tighter(min, greatest, old_greatest))
            yield each

    def partitions(self) -> Sequence[InputPartition]:
        """Return a slice for each place and part of the time, at the place's position."""
        found: list[InputPartition] = []
        for place in self.places:
            options = self._options(place)
            for t_from, t_to in self._windows(place, options):
                found.append(Slice(place, {**options, "t_from": t_from, "t_to": t_to}))
        return found

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read a slice in Arrow batches."""
        if not isinstance(partition, Slice):
            raise AssertionError(f"a partition that this reader did not plan: {partition}")
        schema = to_arrow_schema(self.schema, timezone="UTC")
        columns = ", ".join(f"{identifier(each.name)}::{_duckdb(str(each.type))} AS {identifier(each.name)}" for each in schema)
        question = f"SELECT {columns} FROM ({partition.place.scan(self.source, partition.options)}) AS found"
        for batch in partition.place.ask(question):
            yield batch.cast(schema)

    def _options(self, place: Place) -> dict[str, Any]:
        """Fix the position, and choose an index whose field has bounds."""
        (snapshot,) = place.rows(f"SELECT position FROM {place.call('snapshot')}")
        options: dict[str, Any] = {"at": snapshot["position"]}
        indexes = f"""SELECT "index", value FROM {place.call("indexes")}
            WHERE source = {quoted(self.source)} AND filter IS NULL AND state = 'open' ORDER BY "index\""""
        for row in place.rows(indexes):
            least, greatest = self.bounds.get(row["value"], (None, None))
            if _is_number(least) or _is_number(greatest):
                return {**options, "index": row["index"], "v_min": least, "v_max": greatest}
        return options

    def _windows(self, place: Place, options: Mapping[str, Any]) -> list[tuple[datetime | None, datetime | None]]:
        """Cut the time of the records into equal parts. The outermost have no end, unless the filters have one."""
        least, greatest = self.bounds.get("ts", (None, None))
        first = least if isinstance(least, datetime) and least.tzinfo else None
        last = greatest + timedelta(microseconds=1) if isinstance(greatest, datetime) and greatest.tzinfo else None
        (row,) = place.rows(f"SELECT first_ts, last_ts FROM {place.call('sources')} WHERE name = {quoted(self.source)}")
        if self.slices == 1 or row["first_ts"] is None:
            return [(first, last)]
        begin, end = first or row["first_ts"], last or row["last_ts"]
        cuts = [begin + (end - begin) * number / self.slices for number in range(1, self.slices)]
        cuts = [cut.astimezone(UTC) for cut in cuts] if begin < end else []
        return list(zip([first, *cuts], [*cuts, last], strict=True))


def _bounds(each: Any) -> tuple[Any, Any]:
    """Return the closed bounds that a filter implies."""
    if isinstance(each, In):
        values = [value for value in each.value if value is not None]
        return (min(values), max(values)) if values else (None, None)
    least = each.value if isinstance(each, (EqualTo, GreaterThan, GreaterThanOrEqual)) else None
    return least, each.value if isinstance(each, (EqualTo, LessThan, LessThanOrEqual)) else None


def _tighter(choose: Any, new: Any, old: Any) -> Any:
    return new if old is None else old if new is None else choose(new, old)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and math.isfinite(value)


def _spark(name: str, kind: str) -> str:
    """Return Spark's type for a column of an Arrow type. An address fits a BIGINT."""
    if kind.startswith("timestamp[us, tz="):
        return "TIMESTAMP"
    return "BIGINT" if name == "addr" else TYPES[kind]


def _duckdb(kind: str) -> str:
    """Return DuckDB's type for the Arrow type that Spark expects."""
    return "TIMESTAMPTZ" if kind.startswith("timestamp[us, tz=") else CASTS[kind]


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
