"""Other engines read an archive in place: ClickHouse, Iceberg, Spark and DuckLake find the same records and values as Loom."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import chdb
import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import loom_duckdb
from loom_duckdb.files import load_statement

from conftest import ROOT, requests

RECORDS = 200_000
# The rank of the quantile 0.9999, from 0. Engines round ranks in different ways.
RANK = 199_980 - 1
LAST_U64 = 2**64 - 1


@pytest.fixture(scope="module")
def directory(load: Callable[..., Path]) -> Path:
    """Write a directory with an unsigned number of 64 bits and a time of nanoseconds beside each latency."""
    columns = f"({LAST_U64} - id)::UBIGINT AS big, make_timestamp_ns(1_767_225_600_000_000_001 + id) AS due"
    rows = f"SELECT *, {columns} FROM ({requests(7, RECORDS)})"
    return load("archived", rows, "--index", "latency_us")


@pytest.fixture(scope="module")
def archive(directory: Path, ingestd: str) -> Path:
    """Archive it."""
    archive = directory.with_name("archive")
    subprocess.run([ingestd, "archive", directory, "--to", archive], check=True, capture_output=True)
    return archive


@pytest.fixture(scope="module")
def expected(directory: Path) -> tuple:
    """Ask Loom for the expected answers: records, p99.99, sum of ids, the least unsigned number, the greatest time in nanoseconds."""
    with loom_duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        found = db.execute(
            """SELECT count(*), quantile_disc(latency_us, 0.9999), sum(id), min(big), max(ts_ns), max(epoch_ns(due))
            FROM loom_scan(?, 'request')""",
            [str(directory)],
        ).fetchone()
    assert found[0] == RECORDS
    return tuple(int(value) for value in found)


QUESTION = "SELECT count(*), {quantile}, sum(id), min(big), max(ts_ns), max(loom_ns_due) FROM {records}"
RANKED = f"(SELECT latency_us FROM {{records}} ORDER BY latency_us LIMIT 1 OFFSET {RANK})"


def question(records: str) -> str:
    return QUESTION.format(records=records, quantile=RANKED.format(records=records))


def test_clickhouse_finds_the_same(archive: Path, expected: tuple) -> None:
    answer = chdb.query(question(f"file('{archive}/source=request/*/*/*.parquet', Parquet)"), "JSONCompact")
    (row,) = json.loads(str(answer))["data"]
    assert tuple(int(value) for value in row) == expected


def test_iceberg_takes_the_files_as_they_are(archive: Path, expected: tuple, tmp_path: Path) -> None:
    files = sorted(archive.glob("source=request/*/*/*.parquet"))
    catalog = SqlCatalog("tests", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("loom")
    table = catalog.create_table("loom.request", schema=pq.ParquetFile(files[0]).schema_arrow)
    table.add_files([str(file) for file in files])
    rows = table.scan().to_arrow()
    found = duckdb.connect().execute(question("rows")).fetchone()
    assert rows.schema.field("ts").type.tz == "UTC"
    assert tuple(int(value) for value in found) == expected


def test_spark_reads_the_folders_as_columns(archive: Path, expected: tuple, spark: SparkSession) -> None:
    records = spark.read.parquet(f"{archive}/source=request")
    assert {"loom_date", "loom_hour"} <= set(records.columns)
    assert dict(records.dtypes)["big"] == "decimal(20,0)"
    records.createOrReplaceTempView("archived")
    percentile = "percentile_disc(0.9999) WITHIN GROUP (ORDER BY latency_us)"
    (row,) = spark.sql(QUESTION.format(records="archived", quantile=percentile)).collect()
    assert tuple(int(value) for value in row) == expected


def run_all(db: duckdb.DuckDBPyConnection, statements: list[duckdb.Statement]) -> list[tuple]:
    """Run statements; return the answer of the last."""
    for statement in statements:
        answer = db.execute(statement).fetchall()
    return answer


def test_a_lake_takes_each_file_once_also_those_that_come_later(
    archive: Path, directory: Path, expected: tuple, tmp_path: Path, ingestd: str
) -> None:
    db = duckdb.connect()
    db.execute(load_statement("ducklake"))
    page = (ROOT / "sql/docs/archive.md").read_text()
    (text,) = [block.split("```")[0] for block in page.split("```duckdb\n") if "LOAD ducklake" in block.split("```")[0]]
    text = (
        text.replace("LOAD ducklake;\n", "")
        .replace("lake.ducklake'", f"{tmp_path}/lake.ducklake'")
        .replace("'lake_files'", f"'{tmp_path}/files'")
    )
    text = text.replace("/mnt/archive/web-1", str(archive)).replace(".read sql/lake.sql\n", (ROOT / "sql/lake.sql").read_text())
    assert run_all(db, db.extract_statements(text)) == [expected[:2]]
    again = db.extract_statements((ROOT / "sql/lake.sql").read_text())
    assert run_all(db, again) == [(0,)]
    db.execute(f"SET VARIABLE archive = '{archive.parent}//{archive.name}/'")
    assert run_all(db, again) == [(0,)], "another way to write the path"
    more = requests(8, 1000)
    db.execute(f"COPY (SELECT *, 1::UBIGINT AS big, make_timestamp_ns(1) AS due FROM ({more})) TO '{tmp_path}/more.parquet'")
    subprocess.run(
        [ingestd, "load", directory, "--source", "request", "--ts", "ts", tmp_path / "more.parquet"], check=True, capture_output=True
    )
    subprocess.run([ingestd, "archive", directory, "--to", archive], check=True, capture_output=True)
    assert run_all(db, again) == [(1,)]
    assert db.execute("SELECT count(*) FROM lake.request").fetchone() == (RECORDS + 1000,)
    link, second = tmp_path / "link", tmp_path / "second"
    link.symlink_to(archive)
    subprocess.run([ingestd, "archive", directory, "--to", second], check=True, capture_output=True)
    for other in (f"{archive}/../{archive.name}", link, second):
        db.execute(f"SET VARIABLE archive = '{other}'")
        with pytest.raises(duckdb.Error, match=f"'{other}' has rows that are registered already, from '{archive}'; give that path"):
            run_all(db, again)
        assert db.execute("SELECT len(getvariable('lake_files'))").fetchone() == (0,)
    db.execute(f"SET VARIABLE archive = '{archive}'; SET VARIABLE source = 'nothing'")
    db.execute("CREATE TABLE lake.nothing AS FROM lake.request LIMIT 0")
    with pytest.raises(duckdb.Error, match=f"the archive '{archive}' has no source 'nothing'; its _manifest.jsonl lists"):
        run_all(db, again)
    db.execute("SET VARIABLE archive = 'relative'; SET VARIABLE source = 'request'")
    with pytest.raises(duckdb.Error, match="the path of the archive is not absolute: relative"):
        run_all(db, again)
    assert db.execute("SELECT count(*) FROM lake.request").fetchone() == (RECORDS + 1000,)
