"""Loom through other languages' DuckDB, while data arrive. Each example prints its answer, separated by tabs."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import loom_duckdb
import pytest
from conftest import DASHBOARDS, ROOT, ask, init_sql, program

JDBC_VERSIONS = {"2.0.0.1": "2.0.0", "1.5.6.0": "1.5.6"}


@pytest.fixture(scope="session")
def node() -> str:
    """Install the package that the example in Node.js names."""
    npm = program("npm", "npm")
    subprocess.run(
        [npm, "install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"], cwd=DASHBOARDS / "node", check=True
    )
    return program("node", "nodejs")


@pytest.fixture(scope="session")
def jars() -> dict[str, Path]:
    """Fetch the drivers from Maven Central, once for a checkout."""
    mvn = program("mvn", "maven")
    place = ROOT / "target" / "jdbc"
    for version in JDBC_VERSIONS:
        if not (place / f"duckdb_jdbc-{version}.jar").exists():
            copy = ["dependency:copy", f"-Dartifact=org.duckdb:duckdb_jdbc:{version}", f"-DoutputDirectory={place}"]
            subprocess.run([mvn, "--batch-mode", "--quiet", *copy], check=True, cwd=DASHBOARDS)
    return {version: place / f"duckdb_jdbc-{version}.jar" for version in JDBC_VERSIONS}


def is_live(rows: list[dict[str, str]], duckdb_version: str, db: duckdb.DuckDBPyConnection) -> None:
    """Compare the rows of `live_sql` with the records."""
    assert {row["duckdb"] for row in rows} == {f"v{duckdb_version}"}
    seconds = {int(row["at_ms"]): int(row["count"]) for row in rows}
    age = datetime.now(UTC) - datetime.fromtimestamp(max(seconds) / 1000, UTC)
    assert timedelta(0) <= age < timedelta(seconds=30)
    counted = db.execute(
        f"""SELECT epoch_ms(time_bucket(INTERVAL 1 SECOND, ts)) AS at_ms, count(*) FROM live.redis_request
            WHERE ts >= make_timestamptz({min(seconds)} * 1000) AND ts < make_timestamptz(({max(seconds)} + 1000) * 1000) GROUP BY at_ms"""
    ).fetchall()
    assert seconds == dict(counted)


def live_sql(live: Path) -> str:
    """Count the requests of the last seconds that are complete."""
    return (
        "SELECT version() AS duckdb, epoch_ms(bucket) AS at_ms, count, p99 "
        f"FROM loom_aggregate('{live}', 'redis_request', 'latency', last := INTERVAL 5 SECOND, bucket := INTERVAL 1 SECOND, "
        "quantiles := [0.99], approx := true, partial := false)"
    )


def test_go_reads_a_live_directory(go: Path, live: Path, db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    is_live(ask([go, init_sql(tmp_path, live, "1.5.6"), live_sql(live)], tmp_path), "1.5.6", db)


def test_node_reads_a_live_directory(node: str, live: Path, db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    command = [node, "live.mjs", init_sql(tmp_path, live, "1.5.6"), live_sql(live)]
    is_live(ask(command, DASHBOARDS / "node"), "1.5.6", db)


@pytest.mark.parametrize("version", JDBC_VERSIONS)
def test_jdbc_reads_a_live_directory(
    jars: dict[str, Path], version: str, live: Path, db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    java = program("java", "default-jdk-headless")
    init = init_sql(tmp_path, live, JDBC_VERSIONS[version])
    command = [java, "-cp", jars[version], DASHBOARDS / "jdbc" / "Live.java", init, live_sql(live)]
    is_live(ask(command, tmp_path), JDBC_VERSIONS[version], db)


@pytest.mark.parametrize("version", JDBC_VERSIONS)
def test_jdbc_reads_every_type_as_it_was_written(jars: dict[str, Path], version: str, ingestd: str, tmp_path: Path) -> None:
    duckdb.connect().execute(
        f"""COPY (SELECT i AS n, (18446744073709551615 - i)::UBIGINT AS big,
            CASE WHEN i % 11 = 0 THEN NULL ELSE 'word ' || (i % 7) END AS word,
            encode('abc') AS raw FROM range(100000) AS r(i)) TO '{tmp_path}/rows.parquet'"""
    )
    directory = tmp_path / "rows.loom"
    load = [ingestd, "load", directory, "--source", "rows", "--index", "n", tmp_path / "rows.parquet"]
    subprocess.run(load, check=True, capture_output=True)
    java = program("java", "default-jdk-headless")
    reads = [Path(__file__).with_name("Reads.java"), loom_duckdb.extension_path(JDBC_VERSIONS[version]), directory, "rows"]
    done = subprocess.run([java, "-cp", jars[version], *reads], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "100000 rows, all as they were written" in done.stdout


@pytest.mark.parametrize("client", ["go", "node"])
def test_a_locked_client_reads_no_other_file(client: str, request: pytest.FixtureRequest, live: Path, tmp_path: Path) -> None:
    init = init_sql(tmp_path, live, "1.5.6")
    start = [request.getfixturevalue("go")] if client == "go" else [request.getfixturevalue("node"), DASHBOARDS / "node" / "live.mjs"]
    done = subprocess.run([*start, init, "FROM read_text('/etc/hostname')"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "disabled by configuration" in done.stderr
