"""Grafana's files: the SQL of every panel and alert runs through the plugin's Go client, on a connection that starts like the plugin's."""

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import duckdb
import loom_duckdb
import pytest
from conftest import DASHBOARDS, ask

GRAFANA = DASHBOARDS / "grafana"
PANELS = {panel["title"]: panel for panel in json.loads((GRAFANA / "dashboard.json").read_text())["panels"]}


@pytest.fixture
def init(live: Path, tmp_path: Path) -> Path:
    """Write the file that README.md describes, twice, because the plugin runs it again on each connection of its pool."""
    statements = loom_duckdb.init_sql(live, name="live", duckdb_version="1.5.6") + (GRAFANA / "lock.sql").read_text()
    file = tmp_path / "init.sql"
    file.write_text(2 * statements.replace("/var/lib/loom/demo.loom", str(live)))
    return file


def expanded(sql: str, start: datetime, end: datetime) -> str:
    """Put a dashboard's range into a panel's SQL, as Grafana's page does."""
    for name, at in (("from", start), ("to", end)):
        sql = sql.replace(f"${{__{name}:date:iso}}", f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z")
    assert "$" not in sql
    return sql


@pytest.mark.parametrize("title", PANELS)
def test_a_panel_shows_data_of_its_range(title: str, go: Path, init: Path, tmp_path: Path) -> None:
    end = datetime.now(UTC)
    start = end - timedelta(minutes=5)
    (target,) = PANELS[title]["targets"]
    rows = ask([go, init, expanded(target["rawSql"], start, end)], tmp_path)
    assert rows
    if "time" in rows[0]:
        times = [datetime.fromisoformat(row["time"]) for row in rows]
        assert all(start - timedelta(minutes=1) < at <= end for at in times)
        # Grafana requires a series in the order of time.
        assert target["format"] == 1 or times == sorted(times)


def test_the_rate_of_a_panel_is_that_of_the_records(go: Path, init: Path, db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    end = datetime.now(UTC)
    (target,) = PANELS["Requests per second"]["targets"]
    shown = ask([go, init, expanded(target["rawSql"], end - timedelta(minutes=5), end)], tmp_path)
    times = [datetime.fromisoformat(row["time"]) for row in shown]
    width = min(later - earlier for earlier, later in pairwise(times))
    window = f"ts >= '{times[0].isoformat()}' AND ts < '{(times[-1] + width).isoformat()}'"
    (counted,) = db.execute(f"SELECT count(*) FROM live.redis_request WHERE {window}").fetchall()[0]
    assert round(sum(float(row["requests"]) for row in shown) * width.total_seconds()) == counted


def test_the_alert_measures_the_last_minute(go: Path, init: Path, db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    rules = (GRAFANA / "provisioning" / "alerting" / "loom.yaml").read_text()
    (sql,) = re.findall(r"rawSql: >-\n((?: {16}.*\n)+)", rules)
    assert "$" not in sql, "Grafana expands variables in rules"
    (row,) = ask([go, init, " ".join(sql.split())], tmp_path)
    exact = "SELECT quantile_disc(latency_ns, 0.99) / 1000 FROM live.redis_request WHERE ts >= now() - INTERVAL 1 MINUTE"
    (measured,) = db.execute(exact).fetchall()[0]
    assert float(row["p99_us"]) == pytest.approx(measured, rel=0.1)
