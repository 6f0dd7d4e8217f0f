"""The answers of many hosts, from Python and from SQL, equal those of one DuckDB over all of their records."""

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

import loom_duckdb
from loom_duckdb.connection import quoted

from conftest import ROOT, TOKEN, CountingProxy, Host, client, latest_scan, requests

QUANTILES = [0.0, 0.5, 0.9, 0.99, 0.9999, 1.0]


@pytest.fixture
def union(directories: dict[str, Path]) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with the records of both directories as the table `records`."""
    return all_records({name: (directory, None) for name, directory in directories.items()}, "request")


def all_records(directories: dict[str, tuple[Path, int | None]], source: str) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with a table of a source's records in all directories, each up to a position."""
    db = loom_duckdb.connect()
    db.execute("SET TimeZone = 'UTC'")
    scans = [
        f"SELECT '{name}' AS host, * EXCLUDE (dir) FROM loom_scan('{directory}', '{source}', at := {'NULL' if at is None else at}::UBIGINT)"
        for name, (directory, at) in directories.items()
    ]
    db.execute(f"CREATE TABLE records AS {' UNION ALL '.join(scans)}")
    return db


def sql_fleet(hosts: dict[str, str]) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB as the page shows: a secret for each host, the hosts, and `sql/fleet.sql`."""
    db = client()
    db.execute("SET TimeZone = 'UTC'")
    for name, address in hosts.items():
        db.execute(f"CREATE SECRET \"{name}\" (TYPE quack, TOKEN '{TOKEN}', SCOPE '{address}')")
    db.execute(f"SET VARIABLE fleet_hosts = MAP {hosts}")
    db.execute((ROOT / "sql/fleet.sql").read_text())
    return db


@pytest.fixture
def asked(pair: dict[str, Host]) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB that asks both hosts in SQL."""
    return sql_fleet({name: host.address for name, host in pair.items()})


def test_quantiles_equal_those_of_all_records(fleet: loom_duckdb.Fleet, union: duckdb.DuckDBPyConnection) -> None:
    found = fleet.quantiles("request", "latency_us", QUANTILES).table
    (expected,) = union.execute(f"SELECT quantile_disc(latency_us, {QUANTILES}) FROM records").fetchone()
    assert found.to_pydict() == {"quantile": QUANTILES, "value": expected}


def test_quantiles_of_a_window_equal_those_of_its_records(fleet: loom_duckdb.Fleet, union: duckdb.DuckDBPyConnection) -> None:
    window = {"t_from": datetime(2026, 3, 1, 0, 0, 5, tzinfo=UTC), "t_to": datetime(2026, 3, 1, 0, 0, 9, tzinfo=UTC)}
    found = fleet.quantiles("request", "latency_us", QUANTILES, **window).table
    (expected,) = union.execute(
        f"SELECT quantile_disc(latency_us, {QUANTILES}) FROM records WHERE ts >= $t_from AND ts < $t_to", window
    ).fetchone()
    assert found["value"].to_pylist() == expected


def test_quantiles_of_no_records_are_null(fleet: loom_duckdb.Fleet) -> None:
    found = fleet.quantiles("request", "latency_us", [0.5], t_from=datetime(2030, 1, 1, tzinfo=UTC)).table
    assert found.to_pydict() == {"quantile": [0.5], "value": [None]}


@pytest.mark.parametrize(("bucket", "since"), [("7 seconds", None), ("1 minute", 5.5), ("250 ms", 39.1), ("1 day", None)])
def test_quantiles_of_buckets_equal_those_of_their_records(
    fleet: loom_duckdb.Fleet, union: duckdb.DuckDBPyConnection, bucket: str, since: float | None
) -> None:
    t_from = None if since is None else datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=since)
    found = fleet.quantiles("request", "latency_us", QUANTILES, bucket=bucket, t_from=t_from).table
    question = f"""SELECT unnest({QUANTILES}::DOUBLE[]) AS quantile, unnest(quantile_disc(latency_us, {QUANTILES})) AS value,
        time_bucket(INTERVAL '{bucket}', ts::TIMESTAMP)::TIMESTAMPTZ AS bucket FROM records WHERE ts >= coalesce(?, ts) GROUP BY bucket"""
    expected = union.execute(f"SELECT bucket, quantile, value FROM ({question}) ORDER BY bucket, quantile", [t_from]).to_arrow_table()
    assert found.to_pydict() == expected.to_pydict()
    assert len(found) >= len(QUANTILES)


def test_quantiles_of_many_buckets_take_a_host_a_few_scans(fleet: loom_duckdb.Fleet, pair: dict[str, Host]) -> None:
    before = {name: latest_scan(host) for name, host in pair.items()}
    found = fleet.quantiles("request", "latency_us", [0.5, 0.99], bucket="100 ms").table
    assert len(set(found["value"].to_pylist())) > 100
    for name, host in pair.items():
        (scans,) = host.ask(f"SELECT count(*) FROM host_scan_stats() WHERE scan > {before[name]}")[0]
        # One for the bins, and the scans of their values.
        assert 1 < scans <= 9


def test_quantiles_of_buckets_of_no_records_are_no_rows(fleet: loom_duckdb.Fleet) -> None:
    found = fleet.quantiles("request", "latency_us", [0.5], bucket="1 minute", t_from=datetime(2030, 1, 1, tzinfo=UTC)).table
    assert found.to_pydict() == {"bucket": [], "quantile": [], "value": []}


def test_aggregates_equal_those_of_all_records(fleet: loom_duckdb.Fleet, union: duckdb.DuckDBPyConnection) -> None:
    expected = union.execute("SELECT count(*), sum(latency_us), min(latency_us), max(latency_us), avg(latency_us) FROM records").fetchone()
    assert tuple(fleet.aggregate("request", "latency_us").table.to_pylist()[0].values()) == expected


def test_buckets_equal_those_of_all_records(
    fleet: loom_duckdb.Fleet, asked: duckdb.DuckDBPyConnection, union: duckdb.DuckDBPyConnection
) -> None:
    question = """SELECT epoch_us(time_bucket(INTERVAL 7 SECOND, ts)) AS bucket, count(*), sum(latency_us)::BIGINT, max(latency_us)
        FROM records GROUP BY bucket ORDER BY bucket"""
    expected = union.execute(question).fetchall()
    rows = fleet.aggregate("request", "latency_us", bucket="7 seconds").table.to_pylist()
    assert [(round(row["bucket"].timestamp() * 1e6), row["count"], int(row["sum"]), row["max"]) for row in rows] == expected
    macro = "SELECT epoch_us(bucket), count, sum::BIGINT, max FROM fleet_aggregate('request', 'latency_us', bucket := '7 seconds')"
    assert asked.execute(macro).fetchall() == expected


def test_a_scan_returns_the_records_of_all_hosts(fleet: loom_duckdb.Fleet, union: duckdb.DuckDBPyConnection) -> None:
    found = fleet.scan("request", ["id", "op", "latency_us"], index="latency_us", v_min=20_000, where="op = 'GET'").table
    expected = union.execute("SELECT host, id, op, latency_us FROM records WHERE latency_us >= 20_000 AND op = 'GET'").fetchall()
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == sorted(expected)
    assert len(expected) > 2


def test_macros_give_the_exact_quantile_in_two_rounds(asked: duckdb.DuckDBPyConnection, union: duckdb.DuckDBPyConnection) -> None:
    asked.execute("SET VARIABLE fleet = fleet_frozen()")
    for q in QUANTILES:
        asked.execute(f"SET VARIABLE bin = fleet_bin('request', 'latency_us', {q})")
        found = asked.execute("SELECT fleet_quantile('request', 'latency_us', getvariable('bin'))").fetchone()
        assert found == union.execute(f"SELECT quantile_disc(latency_us, {q}) FROM records").fetchone()


def test_the_rank_of_a_quantile_is_that_of_the_decimal_as_it_is_written(load: Callable[..., Path], hosted: Callable[..., Host]) -> None:
    rows = "SELECT TIMESTAMP '2026-03-01' + to_microseconds(i) AS ts, i AS latency_us FROM range(100) AS numbers(i)"
    address = hosted(load("hundred", rows, "--index", "latency_us")).address
    # The product of doubles is above the whole number for each of these.
    written = {0.07: 6, 0.14: 13, 0.28: 27, 0.55: 54, 0.56: 55}
    found = loom_duckdb.Fleet({"one": address}, TOKEN).quantiles("request", "latency_us", list(written)).table
    assert found["value"].to_pylist() == list(written.values())
    db = sql_fleet({"one": address})
    for q, value in written.items():
        for text in (str(q), f"{q}::DOUBLE"):
            db.execute(f"SET VARIABLE bin = fleet_bin('request', 'latency_us', {text})")
            assert db.execute("SELECT fleet_quantile('request', 'latency_us', getvariable('bin'))").fetchone() == (value,), text


def test_macros_give_the_top_and_the_tail_of_all_hosts(asked: duckdb.DuckDBPyConnection, union: duckdb.DuckDBPyConnection) -> None:
    top = asked.execute("SELECT host, id, latency_us FROM fleet_top('request', 'latency_us', 'latency_us', 10)").fetchall()
    expected = union.execute("SELECT host, id, latency_us FROM records ORDER BY latency_us DESC, ts_ns LIMIT 10").fetchall()
    assert [row[2] for row in top] == [row[2] for row in expected]
    assert set(top) == set(expected)
    tail = asked.execute("SELECT ts_ns FROM fleet_tail('request', 5)").fetchall()
    assert tail == union.execute("SELECT ts_ns FROM records ORDER BY ts_ns DESC LIMIT 5").fetchall()


@pytest.fixture
def sets(union: duckdb.DuckDBPyConnection) -> tuple[str, duckdb.DuckDBPyConnection]:
    """Return a filter, and the records of both directories that match it as the table `sets`."""
    matching = "op = 'SET' AND id BETWEEN 1000 AND 300000"
    union.execute(f"CREATE TABLE sets AS FROM records WHERE {matching}")
    return matching, union


def test_a_filter_tests_the_records_before_they_are_summarised(
    fleet: loom_duckdb.Fleet, asked: duckdb.DuckDBPyConnection, sets: tuple[str, duckdb.DuckDBPyConnection]
) -> None:
    matching, union = sets
    expected = union.execute("SELECT count(*), sum(latency_us), min(latency_us), max(latency_us), avg(latency_us) FROM sets").fetchone()
    assert tuple(fleet.aggregate("request", "latency_us", filter=matching).table.to_pylist()[0].values()) == expected
    text = quoted(matching)
    assert asked.execute(f"SELECT * EXCLUDE bucket FROM fleet_aggregate('request', 'latency_us', filter := {text})").fetchone() == expected
    (expected,) = union.execute(f"SELECT quantile_disc(latency_us, {QUANTILES}) FROM sets").fetchone()
    assert fleet.quantiles("request", "latency_us", QUANTILES, filter=matching).table["value"].to_pylist() == expected
    asked.execute("SET VARIABLE fleet = fleet_frozen()")
    for q, value in zip(QUANTILES, expected, strict=True):
        asked.execute(f"SET VARIABLE bin = fleet_bin('request', 'latency_us', {q}, filter := {text})")
        assert asked.execute("SELECT fleet_quantile('request', 'latency_us', getvariable('bin'))").fetchone() == (value,)


def test_quantiles_of_buckets_are_those_of_the_records_that_match_a_filter(
    fleet: loom_duckdb.Fleet, sets: tuple[str, duckdb.DuckDBPyConnection]
) -> None:
    matching, union = sets
    found = fleet.quantiles("request", "latency_us", [0.5, 0.99], bucket="7 seconds", filter=matching).table
    question = """SELECT unnest([0.5, 0.99]::DOUBLE[]) AS quantile, unnest(quantile_disc(latency_us, [0.5, 0.99])) AS value,
        time_bucket(INTERVAL 7 SECOND, ts::TIMESTAMP)::TIMESTAMPTZ AS bucket FROM sets GROUP BY bucket"""
    expected = union.execute(f"SELECT bucket, quantile, value FROM ({question}) ORDER BY bucket, quantile").to_arrow_table()
    assert found.to_pydict() == expected.to_pydict()


def test_a_filter_tests_the_records_before_they_are_chosen(
    asked: duckdb.DuckDBPyConnection, sets: tuple[str, duckdb.DuckDBPyConnection]
) -> None:
    matching, union = sets
    text = quoted(matching)
    top = asked.execute(f"SELECT op, latency_us FROM fleet_top('request', 'latency_us', 'latency_us', 10, filter := {text})").fetchall()
    assert top == union.execute("SELECT op, latency_us FROM sets ORDER BY latency_us DESC LIMIT 10").fetchall()
    tail = asked.execute(f"SELECT op, ts_ns FROM fleet_tail('request', 5, filter := {text})").fetchall()
    assert tail == union.execute("SELECT op, ts_ns FROM sets ORDER BY ts_ns DESC LIMIT 5").fetchall()
    hit = "TIMESTAMPTZ '2026-03-01 00:00:07+00'"
    near = asked.execute(f"SELECT host, id FROM fleet_near('request', [{hit}], '1 ms', filter := {text}) ORDER BY ALL").fetchall()
    window = f"ts >= {hit} - INTERVAL '1 ms' AND ts < {hit} + INTERVAL '1 ms'"
    assert near == union.execute(f"SELECT host, id FROM sets WHERE {window} ORDER BY ALL").fetchall()
    assert near


def test_macros_join_the_sources_of_two_hosts_around_a_time(asked: duckdb.DuckDBPyConnection, union: duckdb.DuckDBPyConnection) -> None:
    asked.execute("SET VARIABLE hits = (SELECT list(ts) FROM fleet_top('request', 'latency_us', 'latency_us', 3) WHERE host = 'left')")
    found = asked.execute("SELECT epoch_us(hit), host, id FROM fleet_near('request', getvariable('hits'), '1 ms') ORDER BY ALL").fetchall()
    hits = [hit for (hit,) in asked.execute("SELECT epoch_us(unnest(getvariable('hits')))").fetchall()]
    question = """SELECT hit, host, id FROM records JOIN (SELECT unnest($1::BIGINT[]) AS hit)
        ON epoch_us(ts) >= hit - 1000 AND epoch_us(ts) < hit + 1000 ORDER BY ALL"""
    assert found == union.execute(question, [hits]).fetchall()
    assert {host for _, host, _ in found} == {"left", "right"}


def test_macros_list_the_sources_of_all_hosts(asked: duckdb.DuckDBPyConnection) -> None:
    assert asked.execute("SELECT name, hosts, records, differs FROM fleet_sources()").fetchall() == [("request", 2, 800_000, [])]


def test_a_dead_host_fails_the_statement_and_is_named(pair: dict[str, Host]) -> None:
    db = sql_fleet({"left": pair["left"].address, "dead": "quack:localhost:1"})
    with pytest.raises(duckdb.Error, match="localhost:1/quack"):
        db.execute("FROM fleet_sources()")


def test_the_fleet_answers_at_the_same_positions_while_three_daemons_record(three: dict[str, Host]) -> None:
    db = sql_fleet({name: host.address for name, host in three.items()})
    db.execute("SET VARIABLE fleet = fleet_frozen()")
    plan = db.execute("SELECT getvariable('fleet')").fetchone()[0]
    first = db.execute("SELECT * EXCLUDE bucket FROM fleet_aggregate('redis_request', 'latency')").fetchone()
    db.execute("SET VARIABLE bin = fleet_bin('redis_request', 'latency', 0.99)")
    found = db.execute("SELECT fleet_quantile('redis_request', 'latency', getvariable('bin'))").fetchone()
    positions = {name: int(plan.split(f"SELECT '{name}' AS host")[1].split("'{at}', '")[1].split("'")[0]) for name in three}
    union = all_records({name: (host.directory, positions[name]) for name, host in three.items()}, "redis_request")
    expected = union.execute("SELECT count(*), sum(latency_ns), min(latency_ns), max(latency_ns), avg(latency_ns) FROM records").fetchone()
    assert first == expected
    assert found == union.execute("SELECT quantile_disc(latency_ns, 0.99) FROM records").fetchone()
    live = loom_duckdb.Fleet({name: host.address for name, host in three.items()}, TOKEN).aggregate("redis_request", "latency")
    assert live.table["count"].to_pylist()[0] > first[0]


def test_a_tail_quantile_reads_few_chunks_and_sends_few_bytes(pair: dict[str, Host], union: duckdb.DuckDBPyConnection) -> None:
    proxies = {name: CountingProxy(host.port) for name, host in pair.items()}
    fleet = loom_duckdb.Fleet({name: f"quack:localhost:{proxy.port}" for name, proxy in proxies.items()}, TOKEN)
    before = {name: latest_scan(host) for name, host in pair.items()}
    found = fleet.quantiles("request", "latency_us", [0.9999]).table["value"].to_pylist()
    sent = sum(proxy.bytes for proxy in proxies.values())
    assert found == [union.execute("SELECT quantile_disc(latency_us, 0.9999) FROM records").fetchone()[0]]
    assert 1000 < sent <= 50_000, sent
    for name, host in pair.items():
        read, total = host.ask(f"SELECT sum(chunks_read), max(chunks_total) FROM host_scan_stats() WHERE scan > {before[name]}")[0]
        assert total > 200
        assert 0 < read < total / 3, (name, read, total)


def test_hosts_with_different_bins_are_refused_by_name(load: Callable[..., Path], hosted: Callable[..., Host], ingestd: str) -> None:
    hosts = {}
    for name, bins in [("coarse", "[0, 1000, 100000]"), ("fine", "[0, 100, 200, 300]")]:
        directory = load(name, requests(1, 1000))
        command = [ingestd, "index", "add", directory, "--source", "request", "--index", "hand", "--value", "latency_us", "--bins", bins]
        subprocess.run(command, check=True, capture_output=True)
        hosts[name] = hosted(directory).address
    with pytest.raises(
        loom_duckdb.FleetError, match=r"define the index 'hand' of 'request' in different ways: coarse: .*1000.*; fine: .*300"
    ):
        loom_duckdb.Fleet(hosts, TOKEN).quantiles("request", "hand", [0.5])
    with pytest.raises(duckdb.Error, match=r"the hosts define the index hand of request in different ways: coarse unlike fine"):
        sql_fleet(hosts).execute("SET VARIABLE bin = fleet_bin('request', 'hand', 0.5)")


def test_sources_that_differ_are_refused_and_the_fields_are_named(
    load: Callable[..., Path], hosted: Callable[..., Host], pair: dict[str, Host]
) -> None:
    other = hosted(
        load("odd", f"SELECT ts, id::INTEGER AS id, op, latency_us, 1 AS extra FROM ({requests(1, 1000)})", "--index", "latency_us")
    )
    hosts = {"left": pair["left"].address, "odd": other.address}
    fleet = loom_duckdb.Fleet(hosts, TOKEN)
    with pytest.raises(
        loom_duckdb.FleetError, match=r"extra is missing on left; id is i64 on left, i32 on odd; name columns that all have"
    ):
        fleet.scan("request")
    assert fleet.scan("request", ["op"], t_to=datetime(2026, 3, 1, 0, 0, 0, 100, tzinfo=UTC)).table.num_rows == 2
    assert sql_fleet(hosts).execute("SELECT differs FROM fleet_sources()").fetchall() == [
        (["extra i32 (only odd)", "id i32 (only odd)", "id i64 (only left)"],)
    ]


def test_a_source_and_an_index_that_a_host_does_not_have_are_named(fleet: loom_duckdb.Fleet) -> None:
    with pytest.raises(loom_duckdb.FleetError, match=r"no source 'nothing' on left, right; sql\('FROM host_sources\(\)'\)"):
        fleet.aggregate("nothing", "latency_us")
    with pytest.raises(loom_duckdb.FleetError, match=r"no index 'op' of 'request' on left, right"):
        fleet.quantiles("request", "op", [0.5])
    with pytest.raises(loom_duckdb.FleetError, match=r"the quantile 99 is not a number between 0 and 1"):
        fleet.quantiles("request", "latency_us", [99])
