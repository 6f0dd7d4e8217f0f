"""Exact quantiles of indexes over every type of field equal those of one DuckDB over the records of all hosts."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import loom_duckdb

from conftest import TOKEN, Host
from test_fleet import sql_fleet

QUANTILES = [0.0, 0.3, 0.5, 0.95, 1.0]

# The questions must not confuse `value` and `"` with their own names. The numbers of `op` are in bins that are wider than one.
SOURCE = """
[[source]]
name = 'kinds'
field = [
    { name = 'big', type = 'u64' },
    { name = 'due', type = 'timestamp_ns' },
    { name = 'op', type = 'u16', labels = { 1000 = 'GET', 1001 = 'SET', 1002 = '1003' } },
    { name = 'f', type = 'f32' },
    { name = 'value', type = 'u16', nullable = true },
    { name = 'a "b"', type = 'i64' },
]
index = [
    { name = 'big', value = 'big' }, { name = 'due', value = 'due' }, { name = 'op', value = 'op' }, { name = 'f', value = 'f' },
    { name = 'value', value = 'value' }, { name = 'a "b"', value = 'a "b"' }, { name = 'gets', where = "op = 'GET'" },
]
"""
KINDS = ["big", "due", "op", "f", "value", 'a "b"']


def rows(seed: int) -> str:
    """Write rows. Floats have infinities and NaN, nanoseconds differ only in the last digits, and a number of `op` has no label."""
    return f"""SELECT 18446744073709551615::UBIGINT - r % 1000 AS big,
            make_timestamp_ns(1_700_000_000_000_000_000 + (r % 1000)::BIGINT) AS due,
            ['GET', 'SET', '1003', '1015'][(r % 4)::INT + 1] AS op,
            [r / 7, 'nan', 'inf', '-inf'][greatest((r % 20)::INT - 16, 0) + 1]::FLOAT AS f,
            CASE WHEN r % 2 = 0 THEN r % 60_000 END::USMALLINT AS value, (r % 2001)::BIGINT - 1000 AS "a ""b\"\""
        FROM (SELECT hash(i + {seed} * 1_000_003) % 1_000_000 AS r FROM range(20_000) AS numbers(i))"""


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory, ingestd: str) -> dict[str, Path]:
    """Write two directories with these rows."""
    found = {}
    for seed, name in enumerate(["left", "right"], 1):
        place = tmp_path_factory.mktemp(name)
        (place / "kinds.toml").write_text(SOURCE)
        duckdb.connect().execute(f"COPY ({rows(seed)}) TO '{place}/kinds.parquet'")
        found[name] = place / "kinds.loom"
        for command in (["source", "add", "--fields", place / "kinds.toml", found[name]],
                        ["load", found[name], "--source", "kinds", place / "kinds.parquet"]):  # fmt: skip
            subprocess.run([ingestd, *command], check=True, capture_output=True)
    return found


@pytest.fixture(scope="module")
def addresses(directories: dict[str, Path], hosted: Callable[..., Host]) -> dict[str, str]:
    """Serve both."""
    return {name: hosted(directory).address for name, directory in directories.items()}


@pytest.fixture(scope="module")
def expected(directories: dict[str, Path]) -> Callable[[str], list[str]]:
    """Return a function that gives the quantiles of a field over the records of both, as text. A label is given as its number."""
    db = loom_duckdb.connect()
    db.execute(f"CREATE TABLE records AS FROM loom_scan({[str(each) for each in directories.values()]}, 'kinds', labels := false)")

    def of(field: str) -> list[str]:
        name = '"' + field.replace('"', '""') + '"'
        question = f"SELECT unnest(quantile_disc({name}, {QUANTILES}))::VARCHAR FROM records"
        return [value for (value,) in db.execute(question).fetchall()]

    return of


@pytest.mark.parametrize("field", KINDS)
def test_quantiles_of_a_field_of_any_type_are_exact(field: str, addresses: dict[str, str], expected: Callable[[str], list[str]]) -> None:
    db = duckdb.connect()
    db.register("answer", loom_duckdb.Fleet(addresses, TOKEN).quantiles("kinds", field, QUANTILES).table)
    found = [value for (value,) in db.execute("SELECT value::VARCHAR FROM answer ORDER BY quantile").fetchall()]
    assert found == expected(field)
    assert len(set(found)) > 2


@pytest.mark.parametrize("field", KINDS)
def test_macros_give_exact_quantiles_of_a_field_of_any_type(
    field: str, addresses: dict[str, str], expected: Callable[[str], list[str]]
) -> None:
    db = sql_fleet(addresses)
    found = []
    for q in QUANTILES:
        db.execute(f"SET VARIABLE bin = fleet_bin('kinds', '{field}', {q})")
        found += db.execute(f"SELECT fleet_quantile('kinds', '{field}', getvariable('bin'))::VARCHAR").fetchone()
    assert found == expected(field)


def test_an_index_that_only_counts_is_named(addresses: dict[str, str]) -> None:
    fleet = loom_duckdb.Fleet(addresses, TOKEN)
    with pytest.raises(loom_duckdb.FleetError, match=r"index 'gets' of 'kinds' only counts records and has no values; aggregate\('kinds'"):
        fleet.quantiles("kinds", "gets", [0.5])
    assert fleet.aggregate("kinds", "gets").table["count"].to_pylist()[0] > 1000
    db = sql_fleet(addresses)
    with pytest.raises(duckdb.Error, match="the index gets of kinds only counts records and has no values; fleet_aggregate counts them"):
        db.execute("SET VARIABLE bin = fleet_bin('kinds', 'gets', 0.5)")
    assert db.execute("SELECT count FROM fleet_aggregate('kinds', 'gets')").fetchone()[0] > 1000


def test_the_top_of_a_field_with_labels_is_refused_as_their_order_is_another(addresses: dict[str, str]) -> None:
    with pytest.raises(duckdb.Error, match="cannot order records by op: it is text, and an index goes by numbers"):
        sql_fleet(addresses).execute("FROM fleet_top('kinds', 'op', 'op', 3)").fetchall()
