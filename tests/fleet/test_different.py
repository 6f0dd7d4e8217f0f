"""Hosts whose sources or indexes differ: what cannot be merged is refused first, with the names of the hosts."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import loom_duckdb

from conftest import TOKEN, Host, requests
from test_fleet import sql_fleet

ASKED_IN_SQL = [
    "FROM fleet_aggregate('request', '{index}')",
    "FROM fleet_aggregate('request', '{index}', bucket := INTERVAL 1 MINUTE)",
    "FROM fleet_top('request', '{index}', 'latency_us', 3)",
    "SET VARIABLE bin = fleet_bin('request', '{index}', 0.5)",
]

FIELDS_DIFFER = (
    r"the hosts' source request differs: latency_us f64 \(only wide\); latency_us u32 \(only narrow\); ask the hosts apart, or cast"
)


@pytest.fixture(scope="module")
def add_index(ingestd: str) -> Callable[..., None]:
    """Return a function that adds an index to the source `request` of a directory."""

    def add(directory: Path, name: str, *options: str) -> None:
        command = [ingestd, "index", "add", directory, "--source", "request", "--index", name, *options]
        subprocess.run(command, check=True, capture_output=True)

    return add


@pytest.fixture(scope="module")
def differing(load: Callable[..., Path], hosted: Callable[..., Host], add_index: Callable[..., None]) -> dict[str, str]:
    """Serve two hosts: `wide` has the field `latency_us` as a double and other filters."""
    rows = requests(1, 1000)
    narrow, wide = load("narrow", rows), load("wide", f"SELECT * REPLACE (latency_us::DOUBLE AS latency_us) FROM ({rows})")
    for directory, least in [(narrow, "10"), (wide, "20")]:
        add_index(directory, "latency", "--value", "latency_us", "--bins", "[0, 100, 1000]")
        add_index(directory, "some", "--value", "latency_us", "--where", f"id > {least}")
        add_index(directory, "counted", "--where", f"id > {least}")
        add_index(directory, "same", "--where", "id > 10")
    add_index(narrow, "other", "--value", "latency_us")
    add_index(wide, "other", "--value", "id")
    return {"narrow": hosted(narrow).address, "wide": hosted(wide).address}


@pytest.mark.parametrize("index", ["some", "other", "counted"])
@pytest.mark.parametrize("statement", ASKED_IN_SQL)
def test_no_statement_merges_indexes_that_are_defined_differently(differing: dict[str, str], statement: str, index: str) -> None:
    if index == "counted" and "top" in statement:
        said = "index 'counted' has no values, it only counts records"
    else:
        said = f"the hosts define the index {index} of request in different ways: narrow unlike wide"
    if "top" in statement:
        # It reads all fields too, and may find their difference first.
        said = f"{said}|{FIELDS_DIFFER}"
    with pytest.raises(duckdb.Error, match=said):
        sql_fleet(differing).execute(statement.format(index=index)).fetchall()


@pytest.mark.parametrize("statement", ASKED_IN_SQL)
def test_no_statement_merges_values_of_different_types(differing: dict[str, str], statement: str) -> None:
    said = "the field latency_us of request, which the index latency summarises, is f64 on wide; u32 on narrow; ask the hosts apart"
    if "top" in statement:
        said = f"{said}|{FIELDS_DIFFER}"
    with pytest.raises(duckdb.Error, match=said):
        sql_fleet(differing).execute(statement.format(index="latency")).fetchall()


@pytest.mark.parametrize("records", ["fleet_tail('request', 3)", "fleet_near('request', ['2026-03-01 00:00:00+00'], '1 ms')"])
def test_records_of_hosts_whose_fields_have_other_types_are_refused_by_name(differing: dict[str, str], records: str) -> None:
    with pytest.raises(duckdb.Error, match=FIELDS_DIFFER):
        sql_fleet(differing).execute(f"FROM {records}").fetchall()


def test_a_field_that_a_host_does_not_have_is_null_in_its_records(
    pair: dict[str, Host], load: Callable[..., Path], hosted: Callable[..., Host]
) -> None:
    newer = hosted(load("newer", f"SELECT *, 7 AS region FROM ({requests(1, 100)})"))
    db = sql_fleet({"left": pair["left"].address, "newer": newer.address})
    found = db.execute(
        "SELECT host, region, count(*) FROM fleet_near('request', ['2026-03-01 00:00:00+00'], '1 ms') GROUP BY ALL ORDER BY ALL"
    )
    assert found.fetchall() == [("left", None, 10), ("newer", 7, 10)]


def test_python_names_the_field_whose_type_differs_before_it_asks_for_values(differing: dict[str, str]) -> None:
    fleet = loom_duckdb.Fleet(differing, TOKEN)
    said = "values of the index 'latency' of 'request' differ: latency_us is u32 on narrow, f64 on wide; ask them apart"
    with pytest.raises(loom_duckdb.FleetError, match=said):
        fleet.quantiles("request", "latency", [0.5])
    with pytest.raises(loom_duckdb.FleetError, match=said):
        fleet.aggregate("request", "latency")


def test_python_says_how_indexes_that_only_count_differ(differing: dict[str, str]) -> None:
    with pytest.raises(loom_duckdb.FleetError, match="narrow: counts records where id > 10; wide: counts records where id > 20; ask them"):
        loom_duckdb.Fleet(differing, TOKEN).aggregate("request", "counted")


def test_a_column_of_different_types_is_named_with_the_hosts(differing: dict[str, str]) -> None:
    with pytest.raises(loom_duckdb.FleetError, match="different types: latency_us is uint32 on narrow, double on wide; cast them"):
        loom_duckdb.Fleet(differing, TOKEN).sql("SELECT latency_us FROM host_scan('request') LIMIT 1")


def test_a_count_of_hosts_whose_other_fields_differ_is_merged(differing: dict[str, str]) -> None:
    assert sql_fleet(differing).execute("SELECT count FROM fleet_aggregate('request', 'same')").fetchall() == [(1978,)]
    assert loom_duckdb.Fleet(differing, TOKEN).aggregate("request", "same").table["count"].to_pylist() == [1978]


def test_a_field_that_is_not_that_of_the_index_does_not_order_records(pair: dict[str, Host]) -> None:
    db = sql_fleet({name: host.address for name, host in pair.items()})
    with pytest.raises(duckdb.Error, match="the index latency_us of request does not summarise id; name the field of the index"):
        db.execute("FROM fleet_top('request', 'latency_us', 'id', 3)")
