"""Pins by hand: the button of the explorer's page in Chromium, its server, and the tool of the server for agents."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from chromium import SCREENSHOTS, Start, browser, drag, drawn, page, selected
from conftest import until
from playwright.sync_api import Page, expect
from test_mcp import answers, served

import loom_duckdb
from loom_duckdb import client

__all__ = ["browser", "page"]

SOURCE = """
[[source]]
name = "request"
field = [{ name = "latency_us", type = "u32" }]
index = [{ name = "latency", value = "latency_us" }]
"""


@pytest.fixture
def shop(tmp_path: Path, ingestd: str) -> Iterator[Path]:
    """Run a daemon with 20,000 requests."""
    directory = tmp_path / "pins.loom"
    with subprocess.Popen([ingestd, "run", str(directory)], stderr=subprocess.DEVNULL) as daemon:
        try:
            until((directory / "ingest.sock").exists)
            with client.connect(str(directory)) as loom:
                loom.define(SOURCE)
                for _ in range(20):
                    loom.push("request", [(n % 900 + 1,) for n in range(1000)])
                    loom.sync()
            yield directory
        finally:
            daemon.terminate()


def pins(directory: Path) -> list[tuple]:
    with loom_duckdb.connect() as db:
        return db.execute(f"SELECT rule, kept_by, records, epoch_us(from_ts), epoch_us(to_ts) FROM loom_pins('{directory}')").fetchall()


def span(directory: Path) -> tuple[int, int]:
    """Return the time of all requests, half open, in microseconds."""
    with loom_duckdb.connect() as db:
        return db.execute(f"SELECT epoch_us(min(ts)), epoch_us(max(ts)) + 1 FROM loom_scan('{directory}', 'request')").fetchone()


def test_the_button_keeps_the_records_of_the_selected_time(page: Page, explore: Start, shop: Path) -> None:
    explorer = explore(shop, "--timeout", "60")
    page.goto(f"{explorer.url}#last=0&source=request&index=latency")
    drawn(page)
    drag(page, 0.0, 0.1, 1.0, 0.9)
    chosen = selected(page)
    keep = page.get_by_role("button", name="Keep")
    expect(keep).to_be_visible()
    keep.click()
    said = page.locator("#selection .kept")
    expect(said).to_contain_text("of all sources are kept")
    (kept,) = pins(shop)
    first, end = (round(datetime.fromisoformat(chosen[name]).timestamp() * 1e6) for name in ("sel_from", "sel_to"))
    assert kept[:2] == ("explorer", "hand")
    assert kept[3:] == (first, end)
    with loom_duckdb.connect() as db:
        count = f"SELECT count(*) FROM loom_scan('{shop}', 'request') WHERE epoch_us(ts) >= {first} AND epoch_us(ts) < {end}"
        assert db.execute(count).fetchone() == (kept[2],)
    expect(page.locator("#alerts")).to_contain_text("pin by hand")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "keep.png", full_page=True)

    keep.click()
    expect(said).to_contain_text("Not kept: a pin")
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()


def test_the_button_is_there_only_if_a_pin_can_be_kept(page: Page, explore: Start, shop: Path, ingestd: str, tmp_path: Path) -> None:
    forbidden = explore(shop, "--no-allow-pins", "--timeout", "60")
    first, end = (datetime.fromtimestamp(us / 1e6, UTC).isoformat().replace("+00:00", "Z") for us in span(shop))
    chosen = f"#last=0&source=request&index=latency&sel_from={first}&sel_to={end}"
    page.goto(forbidden.url + chosen)
    selected(page)
    expect(page.get_by_role("button", name="Keep")).to_be_hidden()

    (tmp_path / "old.csv").write_text("ts,latency_us\n2026-03-01T00:00:01Z,7\n")
    (tmp_path / "old.toml").write_text(SOURCE.replace('"request"', '"request"\ntime = "own"'))
    load = [ingestd, "load", str(tmp_path / "old.loom"), "--source", "request", "--fields", str(tmp_path / "old.toml"), "--ts", "ts"]
    subprocess.run([*load, str(tmp_path / "old.csv")], check=True, capture_output=True)
    stopped = explore(tmp_path / "old.loom", "--timeout", "60")
    page.goto(f"{stopped.url}#last=0&source=request&index=latency&sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:00:08Z")
    selected(page)
    expect(page.get_by_role("button", name="Keep")).to_be_hidden()
    status, answer = stopped.request("pin", {"dir": str(tmp_path / "old.loom"), "from": 1, "to": 2})
    assert (status, "no daemon runs on" in answer["error"]) == (400, True)


def test_the_server_pins_what_it_serves_and_only_if_it_may(explore: Start, shop: Path) -> None:
    first, end = span(shop)
    asked = {"dir": str(shop), "from": first, "to": end}
    local, forbidden = explore(shop), explore(shop, "--no-allow-pins")
    everywhere = ["--address", "0.0.0.0"]  # noqa: S104
    remote, allowed = explore(shop, *everywhere), explore(shop, *everywhere, "--allow-pins")
    token = {explorer: {"x-loom-token": explorer.url.partition("token=")[2]} for explorer in (remote, allowed)}
    for explorer, headers in ((forbidden, {}), (remote, token[remote])):
        assert explorer.request("about", **headers)[1]["pins"] == []
        status, answer = explorer.request("pin", asked, **headers)
        assert (status, "start it with --allow-pins" in answer["error"]) == (403, True)
    assert remote.request("pin", asked)[0] == allowed.request("pin", asked)[0] == 401
    for wrong, status, why in [
        ({**asked, "dir": "/etc"}, 400, "not a pin"),
        ({**asked, "from": True}, 400, "not a pin"),
        ([1], 400, "not a pin"),
        ({**asked, "to": first}, 400, "the span is empty"),
        ({**asked, "to": 2**80}, 400, "not a time"),
        ({**asked, "to": end + 3_600_000_000}, 400, "still to come"),
    ]:
        got, answer = local.request("pin", wrong)
        assert (got, why in answer["error"]) == (status, True), answer
    assert local.request("pin", asked, content_type="text/plain")[0] == 415
    assert pins(shop) == []

    for explorer, headers in ((local, {}), (allowed, token[allowed])):
        assert explorer.request("about", **headers)[1]["pins"] == [str(shop)]
    status, kept = allowed.request("pin", asked, **token[allowed])
    assert (status, kept["records"], kept["missing"], kept["removed"]) == (200, 20_000, None, [])
    assert pins(shop) == [("explorer", "hand", 20_000, first, end)]


def test_an_agent_keeps_a_time(shop: Path) -> None:
    first, end = (datetime.fromtimestamp(us / 1e6, UTC).isoformat() for us in span(shop))
    asked = [
        ("pin", {"t_from": first, "t_to": end, "name": "stall", "sources": ["request"]}),
        ("pin", {"last": "1 hour"}),
        ("pin", {}),
        ("pin", {"t_from": first, "t_to": "2100-01-01"}),
        ("pin", {"last": "1 hour", "sources": ["reqest"]}),
    ]
    # The client has an event loop of its own, and so has Playwright in this thread.
    with ThreadPoolExecutor() as threads:
        kept, last, neither, future, unknown = threads.submit(answers, served(shop, options=("--timeout", "60")), *asked).result()
    assert [isinstance(one, dict) and one["records"] for one in (kept, last)] == [20_000, 20_000], (kept, last)
    assert json.loads((Path(kept["path"]) / "pin.json").read_text())["by_hand"]
    assert [pin[:3] for pin in pins(shop)] == [("stall", "hand", 20_000), ("agent", "hand", 20_000)]
    for error, why in ((neither, "give t_from or last"), (future, "still to come"), (unknown, "did you mean 'request'")):
        assert error.startswith("error: "), error
        assert why in error
