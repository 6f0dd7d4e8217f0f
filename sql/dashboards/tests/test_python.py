"""Streamlit, notebooks and ADBC, from `.clients-venv`, while data come in."""

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import CHROMIUM, DASHBOARDS, PATIENCE_MS, ROOT, SCREENSHOTS, answers
from daemon import until
from playwright.sync_api import expect, sync_playwright

PROGRAMS = ROOT / ".clients-venv" / "bin"


@pytest.fixture(scope="module")
def streamlit(live: Path) -> Iterator[str]:
    """Run the app, and return its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = [
        "--server.port",
        str(port),
        "--server.address",
        "127.0.0.1",
        "--server.headless",
        "true",
        "--browser.gatherUsageStats",
        "false",
    ]
    command = [PROGRAMS / "streamlit", "run", DASHBOARDS / "streamlit" / "app.py", *options, "--", live]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TZ": "Europe/Zurich"}
    ) as server:
        try:
            until(lambda: answers(port))
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def test_streamlit_draws_the_requests_and_moves(streamlit: str) -> None:
    assert CHROMIUM.exists(), "the tests drive Debian's Chromium; run 'apt-get install chromium'"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1000}, timezone_id="Europe/Zurich")
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        page.goto(streamlit)
        pictures = page.locator("[data-testid=stVegaLiteChart]")
        expect(pictures).to_have_count(2)
        expect(page.locator("[data-testid=stMetricValue]").first).to_have_text(re.compile(r"^\d[\d,]+$"))
        before = pictures.first.screenshot()
        until(lambda: pictures.first.screenshot() != before)
        assert page.locator("[data-testid=stException]").count() == 0
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / "streamlit.png")
        browser.close()


def run(live: Path, *command: str | Path) -> str:
    done = subprocess.run([PROGRAMS / command[0], *command[1:]], env={**os.environ, "LOOM_DIR": str(live)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_cells_of_marimo_run(live: Path) -> None:
    assert int(run(live, "python", DASHBOARDS / "notebooks" / "marimo_live.py")) > 3


def test_the_cells_of_jupyter_run(live: Path, tmp_path: Path) -> None:
    run(live, "jupyter-execute", f"--output={tmp_path / 'ran'}", DASHBOARDS / "notebooks" / "jupyter_live.ipynb")
    cells = json.loads((tmp_path / "ran.ipynb").read_text())["cells"]
    assert "bucket" in "".join(cells[2]["outputs"][0]["data"]["text/plain"])


def test_adbc_returns_arrow(live: Path) -> None:
    assert int(run(live, "python", DASHBOARDS / "notebooks" / "adbc_live.py")) > 3
