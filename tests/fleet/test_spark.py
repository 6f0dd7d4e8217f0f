"""Spark reads Loom directories and hosts: its answers equal DuckDB's, and the bounds of a frame limit what is read."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

import loom_duckdb

from conftest import TOKEN, CountingProxy, Host, latest_scan, requests


def read(spark: SparkSession, source: str = "request", **options: object) -> DataFrame:
    """Read a source."""
    return spark.read.format("loom").options(source=source, **{name: str(value) for name, value in options.items()}).load()


def hosts_of(pair: dict[str, Host], tmp_path: Path) -> dict[str, str]:
    """Write the options that name both hosts."""
    (tmp_path / "token").write_text(TOKEN + "\n")
    hosts = ",".join(f"{name}={host.address}" for name, host in pair.items())
    return {"hosts": hosts, "token_file": str(tmp_path / "token")}


@pytest.fixture
def union(directories: dict[str, Path]) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with the records of both directories as the view `records`."""
    db = loom_duckdb.connect()
    db.execute(f"CREATE VIEW records AS FROM loom_scan({[str(each) for each in directories.values()]}, 'request')")
    return db


def test_the_types_are_those_that_spark_has(spark: SparkSession, directories: dict[str, Path]) -> None:
    found = dict(read(spark, path=directories["left"]).dtypes)
    assert found == {"source": "string", "ts": "timestamp", "ts_ns": "bigint", "id": "bigint", "op": "string", "latency_us": "bigint",
                     "addr": "bigint", "place": "string"}  # fmt: skip


def test_aggregates_and_percentiles_over_directories_equal_those_of_duckdb(
    spark: SparkSession, directories: dict[str, Path], union: duckdb.DuckDBPyConnection
) -> None:
    read(spark, path=",".join(map(str, directories.values())), slices=3, columns="op,latency_us").createOrReplaceTempView("requests")
    question = "SELECT op, count(*), sum(latency_us), max(latency_us), {} FROM {} GROUP BY op ORDER BY op"
    percentile = "percentile_disc(0.9999) WITHIN GROUP (ORDER BY latency_us)"
    found = [tuple(row) for row in spark.sql(question.format(percentile, "requests")).collect()]
    assert found == union.execute(question.format("quantile_disc(latency_us, 0.9999)", "records")).fetchall()


def test_a_join_over_two_hosts_equals_that_of_duckdb(
    spark: SparkSession, pair: dict[str, Host], union: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    read(spark, **hosts_of(pair, tmp_path), slices=2).createOrReplaceTempView("everywhere")
    question = """SELECT a.id, a.latency_us, b.latency_us FROM {0} AS a JOIN {0} AS b ON a.id = b.id AND a.{1} < b.{1}
        WHERE a.latency_us > 500 AND b.latency_us > 500 ORDER BY 1, 2, 3"""
    found = [tuple(row) for row in spark.sql(question.format("everywhere", "place")).collect()]
    assert found == union.execute(question.format("records", "dir")).fetchall()
    assert len(found) > 100


@pytest.fixture(scope="module")
def shops(load: Callable[..., Path], hosted: Callable[..., Host], ingestd: str) -> dict[str, Host]:
    """Serve two directories with two sources each: requests, and system calls with the ids of requests."""
    found = {}
    for seed, name in enumerate(["left", "right"], 3):
        directory = load(f"shop-{name}", requests(seed, 200_000), "--index", "latency_us")
        calls = directory.with_name("syscall.parquet")
        rows = f"SELECT ts, id AS request, latency_us AS duration_us FROM ({requests(seed + 10, 200_000)})"
        duckdb.connect().execute(f"COPY ({rows}) TO '{calls}'")
        command = [ingestd, "load", directory, "--source", "syscall", "--ts", "ts", "--index", "duration_us", calls]
        subprocess.run(command, check=True, capture_output=True)
        found[name] = hosted(directory)
    return found


def test_a_join_of_two_sources_over_two_hosts_equals_that_of_duckdb_and_reads_few_chunks(
    spark: SparkSession, shops: dict[str, Host], tmp_path: Path
) -> None:
    # Slow requests of a host, with the slow system calls of the other host that have their ids.
    question = """SELECT r.place, count(*), min(r.id), {} FROM requests AS r JOIN syscalls AS s ON s.request = r.id AND s.place <> r.place
        WHERE r.latency_us > 10000 AND s.duration_us > 120 GROUP BY r.place ORDER BY r.place"""
    db = loom_duckdb.connect()
    for view, source in [("requests", "request"), ("syscalls", "syscall")]:
        scans = [f"SELECT *, '{name}' AS place FROM loom_scan('{host.directory}', '{source}')" for name, host in shops.items()]
        db.execute(f"CREATE VIEW {view} AS {' UNION ALL '.join(scans)}")
    expected = db.execute(question.format("quantile_disc(s.duration_us, 0.99)")).fetchall()
    assert min(count for _, count, _, _ in expected) > 5
    before = {name: latest_scan(host) for name, host in shops.items()}
    hosts = hosts_of(shops, tmp_path)
    slow = {"index": "latency_us", "v_min": 10001}
    read(spark, columns="id,latency_us,place", **slow, **hosts).createOrReplaceTempView("requests")
    slow = {"index": "duration_us", "v_min": 121}
    read(spark, "syscall", columns="request,duration_us,place", **slow, **hosts).createOrReplaceTempView("syscalls")
    answer = spark.sql(question.format("percentile_disc(0.99) WITHIN GROUP (ORDER BY s.duration_us)"))
    assert [tuple(row) for row in answer.collect()] == expected
    for name, host in shops.items():
        scans = f"FROM host_scan_stats() WHERE scan > {before[name]} AND source = 'request'"
        read_chunks, total = host.ask(f"SELECT sum(chunks_read)::BIGINT, max(chunks_total)::BIGINT {scans}")[0]
        # The records of a source fill half of the chunks.
        assert 0 < read_chunks < total / 6, (name, read_chunks, total)


def test_bounds_choose_the_chunks_that_are_read(spark: SparkSession, pair: dict[str, Host], tmp_path: Path) -> None:
    host = pair["left"]
    where = {"hosts": f"left={host.address}", "token_file": hosts_of(pair, tmp_path)["token_file"], "columns": "ts,latency_us"}

    def chunks(**bounds: object) -> tuple[int, int, int]:
        before = host.ask("SELECT coalesce(max(scan), 0) FROM host_scan_stats()")[0][0]
        rows = read(spark, **where, **bounds).count()
        scans = f"SELECT sum(chunks_read)::BIGINT, max(chunks_total)::BIGINT FROM host_scan_stats() WHERE scan > {before}"
        return rows, *host.ask(scans)[0]

    everything, every_chunk, total = chunks()
    assert (everything, every_chunk >= total) == (400_000, True)
    slow, by_value, _ = chunks(index="latency_us", v_min=30_001)
    assert 0 < slow == host.ask("SELECT count(*) FROM host_scan('request') WHERE latency_us > 30000")[0][0]
    assert by_value < total / 3
    second, by_time, _ = chunks(t_from="2026-03-01 00:00:07+00", t_to="2026-03-01T00:00:08Z", slices=3)
    assert second == 10_000
    assert by_time < total / 5


def test_each_use_of_a_frame_has_its_own_filter(spark: SparkSession, directories: dict[str, Path]) -> None:
    frame = read(spark, path=directories["left"], columns="ts,latency_us")
    slow = frame.where("latency_us > 30000").count()
    assert 0 < slow < 400_000
    assert frame.count() == 400_000
    assert frame.where("ts < '2026-03-01 00:00:01'").count() == 10_000
    assert frame.where("latency_us > 1000000000 OR ts > '2000-01-01'").count() == 400_000
    frame.createOrReplaceTempView("once")
    both = spark.sql("SELECT (SELECT count(*) FROM once WHERE latency_us > 30000), (SELECT count(*) FROM once)").collect()
    assert [tuple(row) for row in both] == [(slow, 400_000)]


def test_slices_return_each_record_once(spark: SparkSession, directories: dict[str, Path]) -> None:
    frame = read(spark, path=directories["left"], slices=5, columns="id")
    assert frame.rdd.getNumPartitions() == 5
    assert (frame.count(), frame.distinct().count()) == (400_000, 400_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "nowhere.loom"}, "nowhere.loom"),
        ({"hosts": "left=localhost:1", "token": TOKEN}, "is not a host; write name=quack:localhost:9494"),
        ({"hosts": "left=quack:localhost:1"}, "no token for the hosts"),
        ({}, "no directory and no host"),
        ({"hosts": "a=quack:localhost:1,b=quack:localhost:1", "token": TOKEN}, "a and b are both quack:localhost:1, whose records"),
        ({"hosts": "a=quack:localhost:1,a=quack:localhost:2", "token": TOKEN}, "two hosts have one name; name each host once"),
        ({"hosts": "a=quack:localhost:1", "token": TOKEN, "timeout_s": "0"}, "timeout_s is '0'; give a number of seconds"),
        ({"path": "x.loom", "t_from": "2026-03-01"}, "t_from is '2026-03-01'; give a time with its zone"),
        ({"path": "x.loom", "index": "v", "v_min": "many"}, "v_min is 'many'; give a number"),
        ({"path": "x.loom", "v_max": "1"}, "v_min and v_max are bounds of an index"),
    ],
)
def test_bad_options_are_named(spark: SparkSession, options: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        read(spark, **options)


@pytest.mark.parametrize("slices", ["0", "-1", "1.5", "many", "", "10001"])
def test_slices_that_are_none_are_refused(spark: SparkSession, directories: dict[str, Path], slices: str) -> None:
    with pytest.raises(Exception, match=rf"slices is '{slices}'; give a number from 1 to 10000"):
        read(spark, path=directories["left"], slices=slices)


@pytest.mark.parametrize(
    ("columns", "said"),
    [("latency", "has no column 'latency'; it has source, ts"), ("id,op,id", "columns has 'id' twice; name each column once")],
)
def test_columns_that_cannot_be_read_are_named(spark: SparkSession, directories: dict[str, Path], columns: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        read(spark, path=directories["left"], columns=columns)


def test_hosts_whose_fields_differ_are_refused_by_name(
    spark: SparkSession, pair: dict[str, Host], load: Callable[..., Path], hosted: Callable[..., Host]
) -> None:
    wide = hosted(load("wide", f"SELECT * REPLACE (latency_us + 0.5 AS latency_us) FROM ({requests(1, 1000)})"))
    hosts = {"hosts": f"left={pair['left'].address},wide={wide.address}", "token": TOKEN}
    with pytest.raises(Exception, match=r"source 'request' differs: latency_us is u32 on left, .* on wide; give .option\('columns'"):
        read(spark, **hosts).count()
    assert read(spark, columns="id,place", t_to="2026-03-01 00:00:00.1+00", **hosts).count() == 2000


def test_a_host_that_falls_silent_in_mid_answer_fails_its_task_and_is_named(spark: SparkSession, pair: dict[str, Host]) -> None:
    proxy = CountingProxy(pair["left"].port)
    frame = read(spark, hosts=f"slow=quack:localhost:{proxy.port}", token=TOKEN, columns="id,ts", timeout_s=8)
    # More bytes than a plan takes, and fewer than the records take.
    proxy.silent_after = 500_000
    with pytest.raises(Exception, match=r"slow: no answer within 8.0 s \(timeout_s\)"):
        frame.agg({"id": "sum"}).collect()
    assert proxy.bytes >= 500_000


def test_a_host_without_the_source_and_one_that_does_not_answer_are_named(
    spark: SparkSession, pair: dict[str, Host], tmp_path: Path
) -> None:
    with pytest.raises(Exception, match=r"(?s)left.*nothing"):
        read(spark, "nothing", **hosts_of(pair, tmp_path)).count()
    with pytest.raises(Exception, match="dead"):
        read(spark, hosts="dead=quack:localhost:1", token=TOKEN).count()
