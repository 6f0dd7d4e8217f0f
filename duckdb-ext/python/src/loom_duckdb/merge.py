"""Merges the answers of many hosts: aggregates, ranks in merged bins, and differences between hosts.

`fleet` calls it, with Arrow tables that have the column `host`. It queries no host.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import duckdb
import pyarrow

from loom_duckdb.parameters import Typed


class Bin(NamedTuple):
    """A half-open bin that holds requested ranks, and the buckets in which it does; [None] without buckets.

    An open end is NULL of the values' type.
    """

    lower: Typed
    upper: Typed
    buckets: list[int | None]


def merged_aggregate(connection: duckdb.DuckDBPyConnection, rows: pyarrow.Table, by_bucket: bool) -> pyarrow.Table:
    """Merge the hosts' count, sum, min and max, in each bucket if there are any."""
    key, order = ("bucket, ", " GROUP BY bucket ORDER BY bucket") if by_bucket else ("", "")
    return _ask(
        connection,
        f"""SELECT {key}sum(count)::BIGINT AS count, sum(sum) AS sum, min(min) AS min, max(max) AS max,
            sum(sum) / sum(count) AS avg FROM answers{order}""",
        answers=rows,
    )


def wanted_bins(connection: duckdb.DuckDBPyConnection, bins: pyarrow.Table, quantiles: Sequence[float]) -> tuple[pyarrow.Table, list[Bin]]:
    """Find each quantile of each bucket in the merged bins; a bucket without values has none. Return the places and these bins.

    `bins` has `bucket` in microseconds since 1970 (NULL without buckets), `lower`, `upper` and `count`. The table has `bucket`,
    `quantile`, `bin` (a position in the list), `rank` (of the value in its bin, from 1) and `held` (the number of values in the bin).
    The rank among all values of a bucket is max(1, ceil(q * n)), where q is the decimal as written, as in loom_aggregate: 0.07 of 100
    is 7, but the product of doubles is greater.
    """
    totals = _ask(connection, "SELECT bucket, sum(count)::BIGINT AS total FROM answers GROUP BY bucket HAVING total > 0", answers=bins)
    exact = [(float(q), Fraction(str(q))) for q in quantiles]
    ranks = [
        {"bucket": row["bucket"], "quantile": quantile, "rank": max(1, math.ceil(fraction * row["total"]))}
        for row in totals.to_pylist()
        for quantile, fraction in exact
    ]
    wanted = _ask(
        connection,
        """WITH merged AS (SELECT bucket, lower, upper, sum(count)::BIGINT AS n FROM answers GROUP BY ALL),
                counted AS (SELECT *, sum(n) OVER (PARTITION BY bucket ORDER BY lower NULLS FIRST)::BIGINT AS reached FROM merged)
            SELECT ranks.bucket, quantile, dense_rank() OVER (ORDER BY lower NULLS FIRST, upper) - 1 AS bin, rank - (reached - n) AS rank,
                n AS held, lower, upper
            FROM ranks JOIN counted ON counted.bucket IS NOT DISTINCT FROM ranks.bucket AND rank > reached - n AND rank <= reached
            ORDER BY ranks.bucket, quantile""",
        answers=bins,
        ranks=pyarrow.Table.from_pylist(
            ranks, pyarrow.schema([("bucket", pyarrow.int64()), ("quantile", pyarrow.float64()), ("rank", pyarrow.int64())])
        ),
    )
    # Ends are constants of their type, because Python has no time with nanoseconds, and 0.1 is another number as FLOAT.
    end = "coalesce('''' || {0}::VARCHAR || '''', 'NULL') || '::' || typeof({0}) AS {0}"
    chosen = f"""SELECT {end.format("lower")}, {end.format("upper")}, list(DISTINCT bucket) AS buckets
        FROM answers GROUP BY bin, lower, upper ORDER BY bin"""
    found = _ask(connection, chosen, answers=wanted).to_pylist()
    return wanted.drop_columns(["lower", "upper"]), [Bin(Typed(row["lower"]), Typed(row["upper"]), row["buckets"]) for row in found]


def merged_quantiles(connection: duckdb.DuckDBPyConnection, wanted: pyarrow.Table, values: pyarrow.Table) -> pyarrow.Table | None:
    """Pick each rank's value from the values of its bin on all hosts: `bin`, `bucket`, `value`, and the number `n` of times it occurs.

    Return None if a bin now holds more or fewer values than when the ranks were found.
    """
    found = _ask(
        connection,
        """WITH merged AS (SELECT bin, bucket, value, sum(n)::BIGINT AS n FROM answers GROUP BY ALL),
                counted AS (SELECT *, sum(n) OVER (PARTITION BY bin, bucket ORDER BY value)::BIGINT AS reached,
                    sum(n) OVER (PARTITION BY bin, bucket)::BIGINT AS held FROM merged)
            SELECT make_timestamptz(wanted.bucket) AS bucket, quantile, value
            FROM wanted JOIN counted ON counted.bin = wanted.bin AND counted.bucket IS NOT DISTINCT FROM wanted.bucket
                AND rank > reached - n AND rank <= reached AND counted.held = wanted.held
            ORDER BY wanted.bucket, quantile""",
        answers=values,
        wanted=wanted,
    )
    return found if len(found) == len(wanted) else None


def differences(fields: Mapping[str, str], columns: Sequence[str] | None) -> list[str]:
    """Say which fields differ between hosts. `fields` has the list of each host, such as `id i64, op utf8 nullable`."""
    types: dict[str, dict[str, str]] = {}
    for host, listed in fields.items():
        for each in listed.split(", "):
            name, _, kind = each.removesuffix(" nullable").rpartition(" ")
            types.setdefault(name, {})[host] = kind
    found = []
    for name, by_host in sorted(types.items()):
        if columns is not None and name not in columns:
            continue
        if without := sorted(fields.keys() - by_host.keys()):
            found.append(f"{name} is missing on {', '.join(without)}")
        elif len(set(by_host.values())) > 1:
            found.append(f"{name} is " + ", ".join(f"{kind} on {host}" for host, kind in sorted(by_host.items())))
    return found


def _ask(connection: duckdb.DuckDBPyConnection, question: str, **tables: pyarrow.Table) -> pyarrow.Table:
    with connection.cursor() as cursor:
        for name, table in tables.items():
            cursor.register(name, table)
        return cursor.execute(question).to_arrow_table()
