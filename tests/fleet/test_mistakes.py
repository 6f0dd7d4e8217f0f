"""A client's mistakes: each is named with its remedy before an answer, or instead of one."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

import loom_duckdb

from conftest import ROOT, TOKEN, Host, client
from test_fleet import sql_fleet


@pytest.fixture(scope="module")
def asked(pair: dict[str, Host]) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB that asks both hosts in SQL."""
    return sql_fleet({name: host.address for name, host in pair.items()})


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SET VARIABLE bin = fleet_bin('request', 'latency_us', -1)", "the quantile -1 is not between 0 and 1"),
        ("SET VARIABLE bin = fleet_bin('request', 'latency_us', 1.5)", "the quantile 1.5 is not between 0 and 1"),
        ("SET VARIABLE bin = fleet_bin('request', 'latency_us', NULL)", "the quantile NULL is not between 0 and 1"),
        ("SET VARIABLE bin = fleet_bin('request', 'latency_us', 'nan'::DOUBLE)", "the quantile nan is not between 0 and 1"),
        ("SET VARIABLE bin = fleet_bin('request', 'latency', 0.5)", "has no index 'latency'; did you mean 'latency_us'"),
        ("SELECT fleet_quantile('request', 'latency_us', NULL)", "the bin is NULL; SET VARIABLE bin = fleet_bin"),
        ("FROM fleet_top('request', 'latency_us', 'latency', 3)", 'Referenced column "latency" not found'),
        ("FROM fleet_top('request', 'latency_us', NULL, 3)", "field is NULL; name the field of the index"),
        ("FROM fleet_top('request', 'latency_us', 'latency_us', NULL)", "n is NULL; give a number of records"),
        ("FROM fleet_tail('request', NULL)", "n is NULL; give a number of records"),
        ("FROM fleet_near('request', NULL, INTERVAL 1 SECOND)", "hits is NULL; give a list of times"),
        ("FROM fleet_near('request', [now()], NULL)", "width is NULL; give an interval, such as INTERVAL 1 SECOND"),
        ("FROM fleet_ask(NULL)", "the question is NULL; ask one SELECT"),
    ],
)
def test_a_wrong_argument_of_a_macro_is_named(asked: duckdb.DuckDBPyConnection, statement: str, said: str) -> None:
    with pytest.raises(duckdb.Error) as raised:
        asked.execute(statement).fetchall()
    assert said in str(raised.value)


def test_the_quantile_of_no_records_is_null(asked: duckdb.DuckDBPyConnection) -> None:
    asked.execute("SET VARIABLE bin = fleet_bin('request', 'latency_us', 0.5, t_from := TIMESTAMPTZ '2030-01-01 00:00:00+00')")
    assert asked.execute("SELECT fleet_quantile('request', 'latency_us', getvariable('bin'))").fetchall() == [(None,)]


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("NULL", "there are no hosts; SET VARIABLE fleet_hosts = MAP {'web-1': 'quack:localhost:9494'}"),
        ("MAP {}", "there are no hosts; SET VARIABLE fleet_hosts"),
        ("MAP {'web-1': 'localhost:9494'}", "the address 'localhost:9494' of host web-1 does not begin with quack:"),
        (
            "MAP {'web-1': 'quack:localhost:1'}",
            "no token for host web-1; CREATE SECRET (TYPE quack, TOKEN '…', SCOPE 'quack:localhost:1')",
        ),
        (
            "MAP {'a': 'quack:known:1', 'b': 'quack:known:2', 'c': 'quack:known:1'}",
            "a and c are both quack:known:1, whose records would count twice; name each host once",
        ),
    ],
)
def test_a_list_of_hosts_that_cannot_be_asked_is_refused_when_the_file_is_read(hosts: str, said: str) -> None:
    db = client()
    db.execute("CREATE SECRET (TYPE quack, TOKEN 'abcd', SCOPE 'quack:known')")
    db.execute(f"SET VARIABLE fleet_hosts = {hosts}")
    with pytest.raises(duckdb.Error) as raised:
        db.execute((ROOT / "sql/fleet.sql").read_text())
    assert said in str(raised.value)


def test_a_source_that_one_host_does_not_have_names_the_host_in_sql_too(
    pair: dict[str, Host], hosted: Callable[..., Host], ingestd: str, tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text("[[source]]\nname = 'other'\n")
    command = [ingestd, "source", "add", "--fields", tmp_path / "other.toml", tmp_path / "other.loom"]
    subprocess.run(command, check=True, capture_output=True)
    other = hosted(tmp_path / "other.loom")
    db = sql_fleet({"left": pair["left"].address, "web-9": other.address})
    for statement in (
        "FROM fleet_aggregate('request', 'latency_us')",
        "FROM fleet_tail('request', 3)",
        "SET VARIABLE bin = fleet_bin('request', 'latency_us', 0.5)",
    ):
        with pytest.raises(duckdb.Error, match=r"(?s)unknown source 'request'.*/\* web-9 \*/ FROM host_"):
            db.execute(statement)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"points": 10}, "aggregate of many hosts takes no points; give bucket, such as '1 minute'"),
        ({"quantiles": [0.5]}, r"aggregate of many hosts takes no quantiles; use quantiles\(source, index, \[0.99\]\)"),
        ({"last": "1 minute"}, "aggregate of many hosts takes no last; give t_from"),
        ({"buckets": "1 minute"}, "takes no buckets; its options are bucket, t_from, t_to, v_min, v_max, filter, complete"),
    ],
)
def test_an_option_that_an_aggregate_of_many_hosts_cannot_have_is_refused(
    fleet: loom_duckdb.Fleet, options: dict[str, object], said: str
) -> None:
    with pytest.raises(loom_duckdb.FleetError, match=said):
        fleet.aggregate("request", "latency_us", **options)


def test_bounds_of_the_value_are_an_option_of_an_aggregate(fleet: loom_duckdb.Fleet, pair: dict[str, Host]) -> None:
    question = "SELECT count(*) FROM host_scan('request') WHERE latency_us BETWEEN 200 AND 300"
    expected = sum(host.ask(question)[0][0] for host in pair.values())
    window = {"t_from": datetime(2026, 3, 1, tzinfo=UTC), "t_to": datetime(2026, 3, 2, tzinfo=UTC)}
    found = fleet.aggregate("request", "latency_us", v_min=200, v_max=300, complete=True, **window)
    assert found.table["count"].to_pylist() == [expected]


@pytest.mark.parametrize(
    ("quantiles", "said"),
    [
        (0.5, r"quantiles takes a list, not 0.5; write \[0.5\]"),
        ("0.5", r"quantiles takes a list, not '0.5'"),
        (["0.5"], "the quantile '0.5' is not a number between 0 and 1"),
        ([float("nan")], "the quantile nan is not a number between 0 and 1"),
        ([True], "the quantile True is not a number between 0 and 1"),
        ([99], "the quantile 99 is not a number between 0 and 1"),
    ],
)
def test_quantiles_that_are_none_are_refused(fleet: loom_duckdb.Fleet, quantiles: object, said: str) -> None:
    with pytest.raises(loom_duckdb.FleetError, match=said):
        fleet.quantiles("request", "latency_us", quantiles)


def test_a_host_that_is_named_twice_is_refused(pair: dict[str, Host]) -> None:
    address = pair["left"].address
    with pytest.raises(loom_duckdb.FleetError, match=f"a and c are both {address}, whose records would count twice; name each host once"):
        loom_duckdb.Fleet({"a": address, "b": pair["right"].address, "c": address}, TOKEN)


def test_a_position_that_no_two_hosts_share_is_refused(fleet: loom_duckdb.Fleet) -> None:
    with pytest.raises(loom_duckdb.FleetError, match="scan of many hosts takes no at; the hosts are read at the positions"):
        fleet.scan("request", ["id"], at=1)


def test_a_time_as_text_bounds_quantiles_of_buckets_too(fleet: loom_duckdb.Fleet) -> None:
    window = {"t_from": "2026-03-01 00:00:08+00", "t_to": "2026-03-01 09:00:09+09"}
    found = fleet.quantiles("request", "latency_us", [0.5], bucket="1 minute", **window).table
    whole = fleet.quantiles("request", "latency_us", [0.5], **window).table
    assert found["value"].to_pylist() == whole["value"].to_pylist() != [None]


def test_a_column_host_in_the_question_is_refused(
    fleet: loom_duckdb.Fleet, asked: duckdb.DuckDBPyConnection, pair: dict[str, Host]
) -> None:
    question = "SELECT 'x' AS host, 1 AS n"
    with pytest.raises(loom_duckdb.FleetError, match="left, right has a column host, which names the host; give that column"):
        fleet.sql(question)
    one = sql_fleet({"left": pair["left"].address})
    for db in (asked, one):
        with pytest.raises(duckdb.Error, match='the name "host" occurs multiple times'):
            db.execute("FROM fleet_ask('" + question.replace("'", "''") + "')")
