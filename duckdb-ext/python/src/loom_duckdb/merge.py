"""How the answers of many hosts become one: aggregates, ranks in merged bins, and what differs between hosts.

`fleet` calls it, with Arrow tables that have the column `host`. It asks no host.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb
import pyarrow


class Rank(NamedTuple):
    """A quantile, the half-open bin that holds its value, and the value's rank in the bin, from 1."""

    quantile: float
    lower: Any
    upper: Any
    rank: int


def merged_aggregate(connection: duckdb.DuckDBPyConnection, rows: pyarrow.Table, by_bucket: bool) -> pyarrow.Table:
    """Merge the hosts' count, sum, min and max, in each bucket if there are any."""
    key, order = ("bucket, ", " GROUP BY bucket ORDER BY bucket") if by_bucket else ("", "")
    return _ask(
        connection,
        rows,
        f"""SELECT {key}sum(count)::BIGINT AS count, sum(sum) AS sum, min(min) AS min, max(max) AS max,
            sum(sum) / sum(count) AS avg FROM answers{order}""",
    )


def wanted_bins(connection: duckdb.DuckDBPyConnection, bins: pyarrow.Table, quantiles: Sequence[float]) -> list[Rank]:
    """Return where each quantile lies in the merged bins; an empty list if there is no value.

    The rank among all values is max(1, ceil(q * n)), where q is the decimal that is written, as in loom_aggregate: 0.07 of 100 is 7, and
    the product of doubles is more.
    """
    total = _ask(connection, bins, "SELECT sum(count)::BIGINT AS total FROM answers").to_pylist()[0]["total"]
    if not total:
        return []
    ranks = [max(1, math.ceil(Fraction(str(q)) * total)) for q in quantiles]
    rows = _ask(
        connection,
        bins,
        f"""WITH merged AS (SELECT lower, upper, sum(count)::BIGINT AS n FROM answers GROUP BY lower, upper),
                counted AS (SELECT *, sum(n) OVER (ORDER BY lower NULLS FIRST)::BIGINT AS reached FROM merged),
                wanted AS (SELECT unnest({[float(q) for q in quantiles]}::DOUBLE[]) AS quantile, unnest({ranks}::BIGINT[]) AS rank)
            SELECT quantile, lower, upper, rank - (reached - n) AS rank
            FROM wanted, counted WHERE rank > reached - n AND rank <= reached ORDER BY quantile""",
    )
    return [Rank(**row) for row in rows.to_pylist()]


def merged_quantiles(connection: duckdb.DuckDBPyConnection, ranks: Sequence[Rank], values: pyarrow.Table) -> pyarrow.Table:
    """Pick each rank's value from the values of its bin on all hosts."""
    merged = _ask(connection, values, "SELECT value, sum(n)::BIGINT AS n FROM answers GROUP BY value ORDER BY value").to_pylist()
    return pyarrow.Table.from_pylist([{"quantile": rank.quantile, "value": _pick(rank, merged)} for rank in ranks])


def _pick(rank: Rank, values: Sequence[Mapping[str, Any]]) -> Any:
    left = rank.rank
    for row in values:
        # NaN is the greatest value, so it is in the uppermost bin only.
        if (rank.lower is not None and row["value"] < rank.lower) or (rank.upper is not None and not row["value"] < rank.upper):
            continue
        left -= row["n"]
        if left <= 0:
            return row["value"]
    raise AssertionError(f"the bins of {rank} have more values than the hosts returned: {left} are missing")


def differences(fields: Mapping[str, str], columns: Sequence[str] | None) -> list[str]:
    """Say which fields are not the same on all hosts, as sentences. `fields` is each host's list, such as `id i64, op utf8 nullable`."""
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


def _ask(connection: duckdb.DuckDBPyConnection, answers: pyarrow.Table, question: str) -> pyarrow.Table:
    with connection.cursor() as cursor:
        cursor.register("answers", answers)
        return cursor.execute(question).to_arrow_table()
