"""Metrics in the explorer, and the keys of the page, in Chromium."""

import subprocess
from pathlib import Path

import pytest
from chromium import SCREENSHOTS, Start, browser, drawn, page, refreshed, watching
from conftest import Explorer
from playwright.sync_api import Locator, Page, expect

import loom_duckdb

__all__ = ["browser", "page", "watching"]

SAMPLES = 400
SERIES = {
    "good": '{ __name__ = "http_requests_total", code = "200", job = "app", instance = "web-1:80" }',
    "bad": '{ __name__ = "http_requests_total", code = "503", job = "app", instance = "web-1:80" }',
    "heap": '{ __name__ = "heap_bytes", job = "app", instance = "web-1:80" }',
    "other": '{ __name__ = "threads", job = "app", instance = "web-1:80" }',
}


@pytest.fixture(scope="module")
def app(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Explorer, Path]:
    """Show the series of an application: a sample each 5 s, with 10 requests a second, of which 2 fail."""
    place = tmp_path_factory.mktemp("app")
    fields = [f'[[source.field]]\nname = "{name}"\ntype = "f64"\nnullable = true\nseries = {series}\n' for name, series in SERIES.items()]
    (place / "app.toml").write_text('[[source]]\nname = "metrics/app/web-1:80"\ntime = "own"\n' + "".join(fields))
    rows = [f"2026-03-01T00:{n // 12:02}:{n % 12 * 5:02}Z,{n * 40},{n * 10},{1e6 + n},{n % 7}" for n in range(SAMPLES)]
    (place / "app.csv").write_text("\n".join(["time,good,bad,heap,other", *rows]) + "\n")
    directory = place / "app.loom"
    options = ["--fields", str(place / "app.toml"), "--source", "metrics/app/web-1:80", "--ts", "time", str(place / "app.csv")]
    subprocess.run([ingestd, "load", str(directory), *options], check=True, capture_output=True)
    return explore(directory), directory


def picture(page: Page, metric: str) -> Locator:
    return page.locator(f"#metrics figure[data-metric={metric}]")


def test_each_metric_has_a_picture_and_a_counter_its_rate(page: Page, app: tuple[Explorer, Path]) -> None:
    page.goto(f"{app[0].url}#last=0")
    expect(page.locator("#metrics")).to_have_attribute("data-state", "shown")
    expect(page.locator("#metrics figure h2")).to_have_text(["heap_bytes", "http_requests_total per second", "threads"])
    expect(page.locator("#metrics .said")).to_have_text("3 of 3 metrics")
    expect(picture(page, "http_requests_total").locator(".legend")).to_have_text("10/s")
    expect(picture(page, "heap_bytes").locator(".legend")).to_have_text("1 MB")
    with loom_duckdb.connect() as db:
        for metric, most in (("http_requests_total", 10), ("heap_bytes", 1e6 + SAMPLES)):
            picture(page, metric).locator(".quiet").click()
            ((value,),) = db.execute(f"SELECT max(value) FROM ({picture(page, metric).locator('pre').inner_text()})").fetchall()
            assert value == pytest.approx(most, rel=0.01)


def test_a_label_splits_a_metric_and_a_text_finds_it(page: Page, app: tuple[Explorer, Path]) -> None:
    page.goto(f"{app[0].url}#last=0")
    expect(page.locator("#metrics")).to_have_attribute("data-state", "shown")
    # A refresh keeps the entries, so that a list that is open stays open.
    page.evaluate("window.entry = document.querySelector('#metrics select').lastChild")
    refreshed(page)
    assert page.evaluate("window.entry.isConnected")
    page.locator("#metrics select").select_option("code")
    expect(picture(page, "http_requests_total").locator(".legend span")).to_have_text(["200 8/s", "503 2/s"])
    page.locator("#metrics input").fill("HTTP")
    expect(page.locator("#metrics figure")).to_have_count(1)
    expect(page.locator("#metrics .said")).to_have_text("1 of 3 metrics")
    assert "split=code" in page.url
    assert "find=HTTP" in page.url
    page.reload()
    expect(picture(page, "http_requests_total").locator(".legend span")).to_have_text(["200 8/s", "503 2/s"])
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "metrics.png")


def test_keys_move_the_window_and_explain_themselves(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#source=redis_request&from=2026-03-01T00:00:00Z&to=2026-03-01T00:01:00Z")
    drawn(page)
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_contain_text("go to the filter")
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    # A window that the records fill: one that would have none stays.
    page.goto(f"{watching.url}#last=1")
    expect(page.locator("#live")).to_contain_text("Live")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#live")).to_contain_text("Go live")
    assert "from=" in page.url
    before = page.url
    page.keyboard.press("-")
    refreshed(page)
    assert page.url != before
    page.keyboard.press("l")
    expect(page.locator("#live")).to_contain_text("Live")
    assert "from=" not in page.url
