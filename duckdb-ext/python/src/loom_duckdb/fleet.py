"""Queries many hosts at once. On each host, `ingestd serve` serves a Loom directory by Quack.

A question is SQL text over `host_scan` and similar macros. It goes to all hosts at the same time, each host prunes its own data, and the
answers return with the column `host`. A host that fails is named in an error or in the answer's `missing`, and never omitted silently.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from numbers import Real
from typing import Any

import pyarrow
import pyarrow.compute

from loom_duckdb.asking import Asker, Failure, Question, client, within
from loom_duckdb.connection import quoted
from loom_duckdb.merge import Bin, differences, merged_aggregate, merged_quantiles, wanted_bins
from loom_duckdb.parameters import Typed, constant, identifier, parameters

# A scan of a few neighbouring bins reads little more than a scan of one, and a question of hundreds of scans takes a host long.
SCANS_MAX = 8

_OPTIONS_OF_AGGREGATE = ("t_from", "t_to", "v_min", "v_max", "filter", "complete")

# Each host would apply these to its own records alone.
_IN_PLACE_OF = {
    "quantiles": "use quantiles(source, index, [0.99])",
    "approx": "use quantiles(source, index, [0.99]), which are exact",
    "points": "give bucket, such as '1 minute'",
    "partial": "give t_from and t_to, which end with a bucket",
    "last": "give t_from",
    "at": "the hosts are read at the positions that they have when the question begins",
}


class FleetError(RuntimeError):
    """A host failed, or hosts do not fit together; the message names them."""


@dataclass(frozen=True)
class Answer:
    """The rows of all hosts that answered, and the reason for each host that did not."""

    table: pyarrow.Table
    missing: dict[str, str] = field(default_factory=dict)


class Fleet:
    """Hosts by name, and the methods that query them.

    `hosts` maps names to addresses such as `"quack:localhost:9494"`; `token` is one token for all, or maps names to tokens. If a host
    fails, a question raises FleetError; with `allow_missing`, the answer comes from the other hosts and says which are missing. A host that
    has not answered a question after `timeout_s` has failed. Addresses that are not on loopback use TLS, with `tls` all addresses;
    `ca_cert_file` names the certificates to trust.
    """

    def __init__(
        self,
        hosts: Mapping[str, str],
        token: str | Mapping[str, str],
        *,
        allow_missing: bool = False,
        timeout_s: float = 30,
        tls: bool = False,
        ca_cert_file: str | None = None,
    ) -> None:
        """Load Quack, and query nothing yet. Raises FleetError if a host has no token or Quack is not installed."""
        if not hosts:
            raise FleetError("a fleet needs a host; give hosts={'name': 'quack:localhost:9494'}")
        if twice := repeated(hosts):
            raise FleetError(f"{twice}; name each host once")
        self.hosts = dict(hosts)
        self.tokens = dict.fromkeys(hosts, token) if isinstance(token, str) else dict(token)
        if without := sorted(self.hosts.keys() - self.tokens.keys()):
            raise FleetError(f"no token for {', '.join(without)}; give token='…', or a token for each host")
        self.allow_missing = allow_missing
        self.timeout_s = timeout_s
        self.tls = tls
        self._connection = client(ca_cert_file)
        self._asker = Asker(ca_cert_file)

    def sql(self, question: str) -> Answer:
        """Run one SELECT over `host_scan` and similar macros on every host."""
        return self._ask(lambda _: question, list(self.hosts))[0]

    def batches(self, name: str, question: str, rows: int) -> Iterator[pyarrow.RecordBatch]:
        """Query one host, and return its answer in batches of `rows` rows, each within `timeout_s`.

        Raises `duckdb.Error`, and TimeoutError if the host stays silent; a thread then waits for it until the process ends.
        """
        cursor = self._connection.cursor()
        reader = within(self.timeout_s, lambda: self._question(name, question).send(cursor).to_arrow_reader(rows))
        while (batch := within(self.timeout_s, lambda: next(reader, None))) is not None:
            yield batch

    def scan(
        self,
        source: str,
        columns: Sequence[str] | None = None,
        *,
        where: str | None = None,
        **options: Any,
    ) -> Answer:
        """Return a source's records on all hosts; `options` are those of `host_scan`, such as `t_from`, `index` and `v_min`.

        Raises FleetError if `columns` differ between hosts.
        """
        if "at" in options:
            raise FleetError(f"scan of many hosts takes no at; {_IN_PLACE_OF['at']}")
        described = self._describe(source, None)
        known = {name: fields for name, (_, fields, _) in described.hosts.items()}
        if found := differences(known, columns):
            raise FleetError(f"the hosts' source {source!r} differs: {'; '.join(found)}; name columns that all have")
        chosen = "*" if columns is None else ", ".join(identifier(name) for name in columns)
        filtered = "" if where is None else f" WHERE {where}"
        return self._ask(
            lambda host: (
                f"SELECT {chosen} FROM host_scan({quoted(source)}{parameters({**options, 'at': described.position(host)})}){filtered}"
            ),
            list(described.hosts),
            described.missing,
        )[0]

    def aggregate(self, source: str, index: str, *, bucket: str | None = None, **options: Any) -> Answer:
        """Return exact count, sum, min, max and avg of an index over all hosts; with `bucket`, such as `"1 minute"`, a row for each.

        `options` are `t_from`, `t_to`, `v_min`, `v_max`, `filter` and `complete`. Raises FleetError for any other.
        """
        if wrong := sorted(options.keys() - _OPTIONS_OF_AGGREGATE):
            remedy = _IN_PLACE_OF.get(wrong[0], f"its options are bucket, {', '.join(_OPTIONS_OF_AGGREGATE)}")
            raise FleetError(f"aggregate of many hosts takes no {wrong[0]}; {remedy}")
        described = self._describe(source, index)
        options = {**options, "bucket": bucket}
        answer, _ = self._ask(
            lambda host: f"FROM host_aggregate({quoted(source)}, {quoted(index)}{parameters({**options, 'at': described.position(host)})})",
            list(described.hosts),
            described.missing,
        )
        return Answer(merged_aggregate(self._connection, answer.table, bucket is not None), answer.missing)

    def quantiles(
        self,
        source: str,
        index: str,
        quantiles: Sequence[float],
        *,
        bucket: str | None = None,
        t_from: datetime | None = None,
        t_to: datetime | None = None,
        filter: str | None = None,
    ) -> Answer:
        """Return exact quantiles of an index over the records of all hosts: a row each, with the columns `quantile` and `value`.

        With `bucket`, such as `"1 minute"`, a row for each quantile of each bucket that has records, with the column `bucket` before.
        With `filter`, such as `"op = 'GET'"`, only matching records count.
        It queries in three rounds at fixed positions: the hosts' definitions, their bins, and the values of the bins that hold the ranks.
        Raises FleetError if hosts define the index in different ways, or if retention removed values of these bins in between.
        """
        if isinstance(quantiles, (str, Real, Decimal)):
            raise FleetError(f"quantiles takes a list, not {quantiles!r}; write [{quantiles}]")
        if wrong := [q for q in quantiles if isinstance(q, bool) or not isinstance(q, (Real, Decimal)) or not 0 <= q <= 1]:
            raise FleetError(f"the quantile {wrong[0]!r} is not a number between 0 and 1")
        described = self._describe(source, index)
        if described.field is None:
            raise FleetError(
                f"index {index!r} of {source!r} only counts records and has no values; aggregate({source!r}, {index!r}) counts them"
            )
        window = {"t_from": t_from, "t_to": t_to, "filter": filter}
        start = "NULL::BIGINT" if bucket is None else "epoch_us(bucket)"
        bins, names = self._ask(
            lambda host: (
                f"SELECT {start} AS bucket, lower, upper, count FROM host_histogram({quoted(source)}, {quoted(index)}"
                f"{parameters({**window, 'bucket': bucket, 'at': described.position(host)})})"
            ),
            list(described.hosts),
            described.missing,
        )
        counted, missing, asked = bins.table, bins.missing, None
        while True:
            wanted, chosen = wanted_bins(self._connection, counted, quantiles)
            if not chosen:
                return Answer(_without_values(quantiles, bucket is not None), missing)
            if chosen != asked:
                by_value = functools.partial(_values, source, index, described.field, described, chosen, bucket, window)
                values, answered = self._ask(by_value, names, missing)
                asked = chosen
            if answered == names:
                merged = merged_quantiles(self._connection, wanted, values.table)
                if merged is None:
                    raise FleetError(f"retention removed records of {source!r} between the rounds; ask again, or from a later t_from")
                return Answer(merged if bucket is not None else merged.drop_columns(["bucket"]), missing)
            # A host failed between the rounds, so the ranks are computed again from the bins of the others.
            names, missing = answered, values.missing
            counted = counted.filter(pyarrow.compute.is_in(counted["host"], pyarrow.array(names)))

    def _describe(self, source: str, index: str | None) -> "_Described":
        """Ask each host for its position, the source's fields and the index's definition; check that they fit together."""
        defined = f"(SELECT arg_max([value, filter, bins], since_addr) FROM host_indexes() WHERE source = {quoted(source)}"
        question = f"""SELECT position, (SELECT fields FROM host_sources() WHERE name = {quoted(source)}) AS fields,
            {"NULL::VARCHAR[]" if index is None else f"{defined} AND index = {quoted(index)})"} AS definition FROM host_snapshot()"""
        answer, _ = self._ask(lambda _: question, list(self.hosts))
        hosts = {row["host"]: (row["position"], row["fields"], row["definition"]) for row in answer.table.to_pylist()}
        missing = dict(answer.missing)
        self._set_aside(hosts, missing, 1, f"no source {source!r}", "sql('FROM host_sources()') lists those that exist")
        if index is not None:
            self._set_aside(hosts, missing, 2, f"no index {index!r} of {source!r}", "sql('FROM host_indexes()') lists those that exist")
            by_definition: dict[tuple[Any, ...], list[str]] = {}
            for name, (_, _, definition) in sorted(hosts.items()):
                by_definition.setdefault(tuple(definition), []).append(name)
            if len(by_definition) > 1:
                ways = "; ".join(f"{', '.join(names)}: {_definition(way)}" for way, names in by_definition.items())
                raise FleetError(f"the hosts define the index {index!r} of {source!r} in different ways: {ways}; ask them apart")
            fields = {name: fields for name, (_, fields, _) in hosts.items()}
            summarised = {definition[0] for _, _, definition in hosts.values() if definition[0] is not None}
            if found := differences(fields, list(summarised)):
                raise FleetError(f"the hosts' values of the index {index!r} of {source!r} differ: {'; '.join(found)}; ask them apart")
        return _Described(hosts, missing)

    def _set_aside(self, hosts: dict[str, Any], missing: dict[str, str], place: int, what: str, remedy: str) -> None:
        """Move the hosts whose description has None at a place to `missing`. Raise FleetError unless the other hosts may answer alone."""
        without = sorted(name for name, description in hosts.items() if description[place] is None)
        if without and not (self.allow_missing and len(without) < len(hosts)):
            raise FleetError(f"{what} on {', '.join(without)}; {remedy}")
        for name in without:
            del hosts[name]
            missing[name] = f"{what}; {remedy}"

    def _ask(
        self, question: Callable[[str], str], names: Sequence[str], missing: Mapping[str, str] | None = None
    ) -> tuple[Answer, list[str]]:
        """Ask the hosts `names` at the same time; return their rows and the names of those that answered."""
        failed = dict(missing or {})
        answers = self._asker.ask({name: self._question(name, question(name)) for name in names}, self.timeout_s)
        failures = {name: answer for name, answer in answers.items() if isinstance(answer, Failure)}
        tables = {name: answer for name, answer in answers.items() if not isinstance(answer, Failure)}
        said = {Failure(_without_paths(failure.reason), failure.is_of_question) for failure in failures.values()}
        if not tables and len(said) == 1 and (failure := said.pop()).is_of_question:
            raise FleetError(f"every host refuses the question: {failure.reason}")
        failed |= {name: _without_paths(failure.reason) for name, failure in failures.items()}
        if failed and not self.allow_missing:
            reasons = "; ".join(f"{name} ({self.hosts[name]}): {reason}" for name, reason in sorted(failed.items()))
            raise FleetError(f"no answer from {reasons}; Fleet(…, allow_missing=True) answers without")
        if not tables:
            raise FleetError(f"no host answered: {'; '.join(f'{name}: {reason}' for name, reason in sorted(failed.items()))}")
        if own := sorted(name for name, table in tables.items() if "host" in table.column_names):
            raise FleetError(f"the answer of {', '.join(own)} has a column host, which names the host; give that column another name")
        rows = [table.add_column(0, "host", pyarrow.array([name] * len(table), pyarrow.string())) for name, table in sorted(tables.items())]
        try:
            return Answer(pyarrow.concat_tables(rows, promote_options="default"), failed), [name for name in names if name in tables]
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            columns = {name: ", ".join(f"{each.name} {each.type}" for each in table.schema) for name, table in tables.items()}
            found = "; ".join(differences(columns, None))
            raise FleetError(f"the hosts' answers have columns of different types: {found}; cast them in the question") from error

    def _question(self, host: str, text: str) -> Question:
        return Question(self.hosts[host], text, self.tokens[host], self.tls)


@dataclass(frozen=True)
class _Described:
    """The description of a source on the hosts: position, fields, and the index's value, filter and bins."""

    hosts: dict[str, tuple[int, str, list[Any] | None]]
    missing: dict[str, str]

    def position(self, host: str) -> int:
        """Return the position at which a host is queried."""
        return self.hosts[host][0]

    @property
    def field(self) -> str | None:
        """Return the field that the index summarises; None if it only counts."""
        return next(definition[0] for _, _, definition in self.hosts.values() if definition is not None)


def repeated(hosts: Mapping[str, str]) -> str | None:
    """Say which two names share an address, if any do."""
    first: dict[str, str] = {}
    for name, address in hosts.items():
        if (other := first.setdefault(address, name)) != name:
            return f"{other} and {name} are both {address}, whose records would count twice"
    return None


def _values(
    source: str,
    index: str,
    field: str,
    described: _Described,
    bins: Sequence[Bin],
    bucket: str | None,
    window: Mapping[str, Any],
    host: str,
) -> str:
    """Write the query that counts each value of the wanted bins on a host, in the buckets where they are wanted."""
    # Buckets are aligned to UTC, whatever the host's time zone.
    start_of = "NULL::BIGINT" if bucket is None else f"epoch_us(time_bucket({quoted(bucket)}::INTERVAL, make_timestamp(epoch_us(ts))))"
    parts = []
    each = -(-len(bins) // SCANS_MAX)
    for first in range(0, len(bins), each):
        run = bins[first : first + each]
        options = {**window, "index": index, "v_min": run[0].lower, "v_max": run[-1].upper, "at": described.position(host), "labels": False}
        if bucket is not None:
            begin = f"make_timestamptz({min(start for each_bin in run for start in each_bin.buckets if start is not None)})"
            t_from = window["t_from"]
            options["t_from"] = Typed(begin if t_from is None else f"greatest({constant(t_from)}::TIMESTAMPTZ, {begin})")
        wanted = ", ".join(
            f"({first + number}, {'NULL::BIGINT' if start is None else start}, {lower.text}, {upper.text})"
            for number, (lower, upper, buckets) in enumerate(run)
            for start in buckets
        )
        parts.append(
            f"SELECT bin, wanted.bucket, value, count(*) AS n FROM (SELECT {start_of} AS bucket, {identifier(field)} AS value "
            f"FROM host_scan({quoted(source)}{parameters(options)})) AS found "
            f"JOIN (VALUES {wanted}) AS wanted(bin, bucket, lower, upper) ON wanted.bucket IS NOT DISTINCT FROM found.bucket "
            "AND (lower IS NULL OR value >= lower) AND (upper IS NULL OR value < upper) GROUP BY ALL"
        )
    return " UNION ALL ".join(parts)


def _without_values(quantiles: Sequence[float], by_bucket: bool) -> pyarrow.Table:
    """Return the quantiles of no records: NULL, or with buckets no row."""
    kept = [] if by_bucket else list(quantiles)
    columns = {"quantile": pyarrow.array(kept, pyarrow.float64()), "value": [None] * len(kept)}
    return pyarrow.table(({"bucket": pyarrow.array([], pyarrow.timestamp("us", "UTC"))} if by_bucket else {}) | columns)


def _definition(way: tuple[Any, ...]) -> str:
    value, condition, bins = way
    where = f" where {condition}" if condition else ""
    return f"counts records{where}" if value is None else f"{value}{where}, bins {bins}"


def _without_paths(reason: str) -> str:
    """Replace functions over the host's directory, whose path means nothing here, by the host's macros."""
    return re.sub(r"\bloom_(\w+)\('(?:[^']|'')*'\)", r"host_\1()", reason)
