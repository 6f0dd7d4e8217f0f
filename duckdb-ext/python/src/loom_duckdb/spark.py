"""Loom as a data source of Spark 4: directories that the executors can read, or hosts that `ingestd serve` serves.

    from loom_duckdb.spark import LoomDataSource

    spark.dataSource.register(LoomDataSource)
    spark.read.format("loom").options(source="request", index="latency_us", v_min="40001").load("/data/*.loom")

The driver fixes a position of each directory when it first plans a frame, so tasks that run twice read the same. Filters of a frame are
not pushed down: Spark keeps them with the table and not with the scan, so one use of a frame would change what another use reads. For
hosts the executors need no Loom, only DuckDB with Quack.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from loom_duckdb.connection import connect, quoted
from loom_duckdb.fleet import Fleet, FleetError, repeated
from loom_duckdb.merge import differences
from loom_duckdb.parameters import Typed, identifier, parameters

ROWS = 100_000
SLICES_MAX = 10_000
# A host that prunes by no index may read for a long time before the first row.
TIMEOUT_S = 300.0

# Spark's type for each Arrow type of a scan. Spark has no unsigned numbers and no nanoseconds.
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
    # This is an ENUM.
    "dictionary<values=string, indices=uint8, ordered=0>": "STRING",
    "binary": "BINARY",
    "timestamp[ns]": "TIMESTAMP_NTZ",
}

# DuckDB's type for each Arrow type that Spark then expects.
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
    """A directory, or a host by its name and address."""

    name: str
    address: str | None = None
    token: str | None = field(default=None, repr=False)
    timeout_s: float = TIMEOUT_S

    def call(self, function: str, *arguments: str, options: Mapping[str, Any] | None = None) -> str:
        """Write a call of `loom_…` on the directory, or of `host_…` on the host."""
        given = [quoted(each) for each in ([self.name] if self.address is None else []) + list(arguments)]
        prefix = "loom" if self.address is None else "host"
        return f"{prefix}_{function}({', '.join(given)}{parameters(options or {})})"

    def scan(self, source: str, options: Mapping[str, Any]) -> str:
        """Write a scan, whose column `place` names the origin of the records."""
        without = " EXCLUDE (dir)" if self.address is None else ""
        return f"SELECT *{without}, {quoted(self.name)} AS place FROM {self.call('scan', source, options=options)}"

    def ask(self, question: str) -> Iterator[pyarrow.RecordBatch]:
        """Run one query."""
        try:
            if self.address is not None:
                yield from _fleet(self).batches(self.name, question, ROWS)
                return
            with connect() as db:
                db.execute("SET TimeZone = 'UTC'")
                yield from db.execute(question).to_arrow_reader(ROWS)
        except (duckdb.Error, TimeoutError) as error:
            raise ValueError(f"{self.name}: {error}") from error

    def table(self, question: str) -> pyarrow.Table:
        """Run a query with a small result."""
        if self.address is None:
            return pyarrow.Table.from_batches(self.ask(question))
        try:
            return _fleet(self).sql(question).table.drop_columns(["host"])
        except FleetError as error:
            raise ValueError(f"{self.name}: {error}") from error


@functools.cache
def _fleet(place: Place) -> Fleet:
    """Return the fleet of one host, which queries it from a process of its own."""
    if place.address is None:
        raise AssertionError(f"{place.name} is a directory")
    return Fleet({place.name: place.address}, place.token or "", timeout_s=place.timeout_s)


@dataclass
class Slice(InputPartition):
    """The part that one task reads: a place up to a position, in a part of the time."""

    place: Place
    options: dict[str, Any]


class LoomDataSource(DataSource):
    """The data source `loom`, and its options.

    `source`: the source, required. The path, or `dir`: directories or globs, separated by commas. `hosts`: instead of the path,
    `name=quack:localhost:9494`, separated by commas, with `token` or `token_file`. `columns`: the columns, separated by commas; Spark does
    not pass on those of `select`, so without it each record is read whole. `t_from`, `t_to`, `index`, `v_min`, `v_max`: the parameters of
    `loom_scan`, which choose the chunks to read. `slices`: the parts of the time for each directory or host, 1 by default. `timeout_s`: the
    longest time in seconds for the next batch of rows of a host, 300 by default.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "loom"

    def schema(self) -> str:
        """Return the columns of a scan, in Spark's types."""
        self._slices()
        self._bounds()
        place = self._places()[0]
        # An answer without rows has no batch, so a row of NULLs provides the types.
        row = place.table(f"SELECT found.* FROM (SELECT 1) LEFT JOIN ({place.scan(self._source(), {})} LIMIT 0) AS found ON true")
        known = {each.name: str(each.type) for each in row.schema}
        chosen = _split(self.options.get("columns")) or list(known)
        if unknown := [name for name in chosen if name not in known]:
            raise ValueError(f"source {self._source()!r} has no column {unknown[0]!r}; it has {', '.join(known)}")
        if twice := [name for number, name in enumerate(chosen) if name in chosen[:number]]:
            raise ValueError(f"columns has {twice[0]!r} twice; name each column once")
        return ", ".join(f"`{name}` {_spark(name, known[name])}" for name in chosen)

    def reader(self, schema: StructType) -> "LoomReader":
        """Return the reader of these columns."""
        return LoomReader(self._source(), self._places(), self._slices(), self._bounds(), schema)

    def _slices(self) -> int:
        slices = self.options.get("slices", "1")
        if not slices.isascii() or not slices.isdigit() or not 1 <= int(slices) <= SLICES_MAX:
            raise ValueError(f"slices is {slices!r}; give a number from 1 to {SLICES_MAX}, such as .option('slices', '4')")
        return int(slices)

    def _timeout_s(self) -> float:
        given = self.options.get("timeout_s", str(TIMEOUT_S))
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", given) or float(given) == 0:
            raise ValueError(f"timeout_s is {given!r}; give a number of seconds, such as .option('timeout_s', '600')")
        return float(given)

    def _bounds(self) -> dict[str, Any]:
        """Return the parameters of the scan."""
        times = {name: _time(name, self.options.get(name)) for name in ("t_from", "t_to")}
        values = {name: _number(name, self.options.get(name)) for name in ("v_min", "v_max")}
        index = self.options.get("index")
        if index is None and any(values.values()):
            raise ValueError("v_min and v_max are bounds of an index; give .option('index', 'NAME')")
        return {**times, "index": index, **values}

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
            named = {name: address for name, _, address in (host.partition("=") for host in hosts)}
            if wrong := [host for host in hosts if not host.partition("=")[2].startswith("quack:")]:
                raise ValueError(f"{wrong[0]!r} is not a host; write name=quack:localhost:9494")
            if len(named) < len(hosts) or repeated(named):
                raise ValueError(f"{repeated(named) or 'two hosts have one name'}; name each host once")
            return [Place(name, address, token, self._timeout_s()) for name, address in named.items()]
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
    """Plans the slices and reads them."""

    def __init__(self, source: str, places: Sequence[Place], slices: int, bounds: Mapping[str, Any], schema: StructType) -> None:
        """Store what to read, and read nothing."""
        self.source, self.places, self.slices, self.bounds, self.schema = source, places, slices, bounds, schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return a slice for each place and part of the time, at the place's position."""
        described = {place: self._described(place) for place in self.places}
        fields = {place.name: row["fields"] for place, row in described.items()}
        if differing := differences(fields, [each.name for each in self.schema]):
            raise ValueError(f"the source {self.source!r} differs: {'; '.join(differing)}; give .option('columns', '…') that are alike")
        found: list[InputPartition] = []
        for place, row in described.items():
            (snapshot,) = place.table(f"SELECT position FROM {place.call('snapshot')}").to_pylist()
            for t_from, t_to in self._windows(row):
                options = {**self.bounds, "at": snapshot["position"], "t_from": t_from, "t_to": t_to}
                found.append(Slice(place, options))
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

    def _described(self, place: Place) -> dict[str, Any]:
        """Return the fields of the source in a place, and the times of its first and last record."""
        rows = place.table(f"SELECT fields, first_ts, last_ts FROM {place.call('sources')} WHERE name = {quoted(self.source)}").to_pylist()
        if not rows:
            raise ValueError(f"{place.name} has no source {self.source!r}")
        return rows[0]

    def _windows(self, row: Mapping[str, Any]) -> list[tuple[datetime | None, datetime | None]]:
        """Split the time of the records into equal parts. The outermost parts are open, unless a bound is given."""
        first, last = self.bounds["t_from"], self.bounds["t_to"]
        if self.slices == 1 or row["first_ts"] is None:
            return [(first, last)]
        begin, end = first or row["first_ts"], last or row["last_ts"]
        cuts = [begin + (end - begin) * number / self.slices for number in range(1, self.slices)]
        cuts = [cut.astimezone(UTC) for cut in cuts] if begin < end else []
        return list(zip([first, *cuts], [*cuts, last], strict=True))


def _time(name: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{name} is {text!r}; give a time with its zone, such as 2026-03-01 00:00:07+00:00")
    return time


def _number(name: str, text: str | None) -> Typed | None:
    """Return a number as written, with all its digits."""
    if text is None:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{name} is {text!r}; give a number") from None
    return Typed(str(number) if number.is_finite() else f"'{number}'::DOUBLE")


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
