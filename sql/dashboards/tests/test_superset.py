"""Superset with the settings and the dashboard of this repository, while data arrive: in UTC, and in a zone with an offset.

It runs from `.superset-venv`.
"""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from conftest import CHROMIUM, DASHBOARDS, PATIENCE_MS, ROOT, SCREENSHOTS, answers
from daemon import until
from playwright.sync_api import Page, Response, sync_playwright

SLOW, ALERTS, PINS = "a table of op", "a table of state", "a table of path"
CHARTS = {"echarts_area": "bucket", "echarts_timeseries_line": "bucket", "heatmap_v2": "t1", SLOW: "ts", ALERTS: "ts", PINS: "to_ts"}
"""The charts of the dashboard by their kind, and the columns of their times."""
RATE = "echarts_area"
PROGRAMS = ROOT / ".superset-venv" / "bin"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, live: Path) -> dict[str, str]:
    """Set Superset up as README.md says. Return the environment in which it runs."""
    place = tmp_path_factory.mktemp("superset")
    environment = {
        **os.environ,
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "FLASK_APP": "superset.app:create_app",
        "LOOM_DIR": str(live),
        "SUPERSET_CONFIG_PATH": str(DASHBOARDS / "superset" / "superset_config.py"),
        "SUPERSET_HOME": str(place),
        "SUPERSET_SECRET_KEY": "a key of this test alone",
    }
    dashboard = place / "loom.zip"
    subprocess.run([sys.executable, DASHBOARDS / "superset" / "make_zip.py", dashboard], check=True)
    admin = ["--username", "admin", "--password", "admin", "--firstname", "Loom", "--lastname", "Test", "--email", "loom@example.org"]
    for command in (["db", "upgrade"], ["fab", "create-admin", *admin], ["init"], ["import-dashboards", "-p", dashboard, "-u", "admin"]):
        done = subprocess.run([PROGRAMS / "superset", *command], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return environment


@pytest.fixture(scope="module", params=["UTC", "Europe/Zurich"])
def address(request: pytest.FixtureRequest, home: dict[str, str]) -> Iterator[str]:
    """Run Superset in a time zone, in one process: `loom_scan_stats` is about a process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["gunicorn", "--workers", "1", "--threads", "8", "--bind", f"127.0.0.1:{port}", "superset.app:create_app()"]
    with subprocess.Popen(
        command, env={**home, "TZ": request.param}, executable=PROGRAMS / "gunicorn", stderr=subprocess.DEVNULL
    ) as server:
        try:
            until(lambda: answers(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


class Dashboard:
    """The dashboard in a browser, the requests and answers of its charts, and the same API for a test's own requests."""

    def __init__(self, page: Page, address: str) -> None:
        """Log in, and open it once."""
        self.page, self.address = page, address
        self.asked: dict[str, dict] = {}
        self.got: dict[str, list[dict]] = {}
        page.set_default_timeout(PATIENCE_MS)
        # The form forgets what is typed before its scripts run.
        page.goto(f"{address}/login/", wait_until="networkidle")
        page.fill("#username", "admin")
        page.fill("#password", "admin")
        page.click("button[type=submit]")
        page.wait_for_url("**/welcome/")
        page.on("response", self._keep)
        self.open()
        # Otherwise it would query again every ten seconds, between the queries of the tests.
        page.goto("about:blank")

    def open(self) -> None:
        """Show it, and wait until all charts have answers."""
        self.got.clear()
        self.page.goto(f"{self.address}/superset/dashboard/loom/")
        for _ in range(PATIENCE_MS // 100):
            if len(self.got) == len(CHARTS):
                break
            self.page.wait_for_timeout(100)
        assert set(self.got) == set(CHARTS)

    def _keep(self, response: Response) -> None:
        if "/api/v1/chart/data" in response.url:
            asked = response.request.post_data_json
            chart = kind(asked["form_data"])
            self.asked[chart] = asked
            self.got[chart] = rows(response.status, response.json())

    def ask(self, chart: str, **changes: str) -> list[dict]:
        """Ask for a chart's data again."""
        body = {**self.asked[chart], "force": True}
        body["queries"] = [{**query, **changes} for query in body["queries"]]
        answer = self.page.request.post(f"{self.address}/api/v1/chart/data", data=body)
        return rows(answer.status, answer.json())

    def sql(self, text: str) -> tuple[int, dict]:
        """Run a statement in SQL Lab."""
        api = f"{self.address}/api/v1"
        token = self.page.request.get(f"{api}/security/csrf_token/").json()["result"]
        body = {"database_id": 1, "sql": text, "runAsync": False, "client_id": uuid.uuid4().hex[:10]}
        answer = self.page.request.post(f"{api}/sqllab/execute/", data=body, headers={"X-CSRFToken": token, "Referer": self.address})
        return answer.status, answer.json()

    def scans(self, after: int) -> list[dict]:
        """Return the reads of the scans of Superset's process since scan `after`."""
        status, answer = self.sql(f"SELECT * FROM loom_scan_stats() WHERE scan > {after} ORDER BY scan")
        assert status == 200, answer
        return answer["data"]


def kind(form: dict) -> str:
    """Return the chart of a form; a column distinguishes the tables."""
    if form["viz_type"] != "table":
        return form["viz_type"]
    return next(chart for chart in (SLOW, ALERTS, PINS) if chart.rpartition(" ")[2] in form["all_columns"])


def rows(status: int, answer: dict) -> list[dict]:
    assert status == 200, answer
    return answer["result"][0]["data"]


def newest(chart: str, data: list[dict]) -> datetime:
    """Return the latest time of a chart's data."""
    assert data, f"{chart} is empty"
    return datetime.fromtimestamp(max(row[CHARTS[chart]] for row in data) / 1000, UTC)


@pytest.fixture(scope="module")
def dashboard(address: str) -> Iterator[Dashboard]:
    assert CHROMIUM.exists(), "the tests drive Debian's Chromium; run 'apt-get install chromium'"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with browser.new_context(viewport={"width": 1600, "height": 1880}) as context:
            yield Dashboard(context.new_page(), address)
        browser.close()


@pytest.mark.parametrize("chart", CHARTS)
def test_a_chart_has_data_of_now(dashboard: Dashboard, chart: str) -> None:
    data = dashboard.ask(chart)
    age = datetime.now(UTC) - newest(chart, data)
    # A slow request comes every few seconds, so the tables are the oldest.
    assert timedelta(0) <= age < timedelta(minutes=5 if chart in (SLOW, ALERTS, PINS) else 0, seconds=30), age


@pytest.mark.parametrize("chart", [chart for chart in CHARTS if chart not in (SLOW, ALERTS, PINS)])
def test_a_chart_moves_while_data_come_in(dashboard: Dashboard, chart: str) -> None:
    before = newest(chart, dashboard.ask(chart))
    until(lambda: newest(chart, dashboard.ask(chart)) > before)


def test_the_counts_of_a_chart_are_those_of_the_records(dashboard: Dashboard, db: duckdb.DuckDBPyConnection) -> None:
    # The newest bucket may have been read a moment before its last records were published.
    shown = {int(row["bucket"]): row["requests"] for row in sorted(dashboard.ask(RATE), key=lambda row: row["bucket"])[:-1]}
    assert len(shown) > 5
    counted = db.execute(
        f"""SELECT epoch_ms(time_bucket(INTERVAL 1 SECOND, ts)) AS bucket, count(*) FROM live.redis_request
            WHERE ts >= make_timestamptz({min(shown)} * 1000) AND ts < make_timestamptz(({max(shown)} + 1000) * 1000) GROUP BY bucket"""
    ).fetchall()
    assert shown == dict(counted)


@pytest.mark.parametrize("chart", [chart for chart in CHARTS if chart not in (ALERTS, PINS)])
def test_a_chart_reads_a_few_chunks_for_each_of_its_seconds(dashboard: Dashboard, chart: str) -> None:
    before = max((row["scan"] for row in dashboard.scans(0)), default=0)
    seconds = 10
    dashboard.ask(chart, time_range=f'DATEADD(DATETIME("now"), -{seconds}, second) : now')
    scans = [row for row in dashboard.scans(before) if row["source"] == "redis_request"]
    assert scans
    assert all(row["chunks_total"] > 1000 for row in scans), scans
    assert sum(row["chunks_read"] for row in scans) <= 3 * seconds + 10, scans


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM '/etc/hostname'",
        "SELECT * FROM loom_sources('/tmp')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '/tmp/loom-superset.csv'",
        "ATTACH '/tmp/loom-superset.duckdb'",
        "CREATE TABLE x (i INTEGER)",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
    ],
)
def test_sql_lab_sees_the_directory_and_nothing_else(dashboard: Dashboard, statement: str) -> None:
    status, answer = dashboard.sql(statement)
    assert status >= 400, answer
    status, answer = dashboard.sql("SELECT count(*) AS n FROM redis_request__latency WHERE bucket > now() - INTERVAL 5 SECOND")
    assert status == 200
    assert answer["data"][0]["n"] > 0


def test_the_dashboard_is_drawn_and_its_picture_is_kept(dashboard: Dashboard, request: pytest.FixtureRequest) -> None:
    dashboard.open()
    page = dashboard.page
    page.locator(".dashboard-component-chart-holder canvas").nth(2).wait_for()
    assert page.locator(".dashboard-component-chart-holder canvas").count() == 3
    assert page.locator(".dashboard-component-chart-holder tbody tr").count() > 1
    assert page.get_by_text("No results").count() == 0
    assert page.get_by_text("error", exact=False).count() == 0
    # A line needs a second to be drawn.
    until(lambda: page.screenshot() == page.screenshot())
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    zone = request.node.callspec.params["address"].rpartition("/")[2].lower()
    page.screenshot(path=SCREENSHOTS / f"superset-{zone}.png")
