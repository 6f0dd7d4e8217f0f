"""The cell under the pointer in the explorer's heat map, in Chromium: its bounds of value and time, and its count."""

import subprocess
from collections.abc import Iterator
from datetime import datetime

import duckdb
import pytest
from chromium import PATIENCE_MS, SCREENSHOTS, Start, browser, drag, drawn, page, refreshed, watching
from conftest import Explorer
from playwright.sync_api import Browser, Page, expect

import loom_duckdb

__all__ = ["browser", "page", "watching"]

WINDOW = "from=2026-03-01T00:00:00Z&to=2026-03-01T00:00:20Z&zone=utc"
DASH = "\N{EN DASH}"
# Of a picture, left and right of what is drawn in it.
MARGINS = (66, 18)


@pytest.fixture(scope="module")
def steps(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    """Show 20 s with a packet each millisecond, whose size is 100, 200, 300 or 400 for 5 s each; kind 2 comes in the first half alone."""
    place = tmp_path_factory.mktemp("steps")
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts, (100 + i // 5000 * 100)::UINTEGER AS size,
                (CASE WHEN i < 10_000 AND i % 4 = 0 THEN 2 ELSE 1 END)::UTINYINT AS kind
            FROM range(20_000) AS numbers(i)) TO '{place}/packet.parquet'"""
    )
    directory = place / "steps.loom"
    indexes = ["--index", "size", "--index", "kind"]
    load = [ingestd, "load", str(directory), "--source", "packet", "--ts", "ts", *indexes, str(place / "packet.parquet")]
    subprocess.run(load, check=True, capture_output=True)
    return explore(directory)


@pytest.fixture(params=[(width, scheme) for width in (420, 1280, 1920) for scheme in ("light", "dark")], ids=str)
def shown(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """Open an empty page of each width and theme."""
    width, scheme = request.param
    with browser.new_context(viewport={"width": width, "height": 1080}, color_scheme=scheme, timezone_id="Europe/Zurich") as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        yield page


def point(page: Page, part: float, top: float = 0) -> int:
    """Point to the first cell below `top` at a part of the window, and check where its text is; return the time under the pointer in µs."""
    canvas = page.locator("#heat canvas.over")
    canvas.scroll_into_view_if_needed()
    before = canvas.bounding_box()
    found = canvas.evaluate(
        """(canvas, [part, top, [left, right]]) => {
            const box = canvas.getBoundingClientRect();
            const x = Math.round(box.left + left + part * (box.width - left - right));
            for (let y = Math.ceil(box.top + top * box.height); y < box.bottom; y++) {
                canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, bubbles: true }));
                if (!document.querySelector('#heat .tip').hidden) return [x, y + 1, (x - box.left - left) / (box.width - left - right)];
            }
        }""",
        [part, top, MARGINS],
    )
    assert found, "no cell is there"
    x, y, exactly = found
    page.mouse.move(x, y)
    expect(page.locator("#heat .tip")).to_be_visible()
    assert canvas.bounding_box() == before, "the picture moved under the pointer"
    cell, tip, figure = (page.locator(name).bounding_box() for name in ("#heat .cell", "#heat .tip", "#heat"))
    assert cell["x"] - 1 <= x <= cell["x"] + cell["width"] + 1
    assert cell["y"] - 1 <= y <= cell["y"] + cell["height"] + 1
    assert tip["x"] > cell["x"] + cell["width"] or tip["x"] + tip["width"] < cell["x"], "the text covers what is pointed at"
    assert figure["x"] <= tip["x"]
    assert tip["x"] + tip["width"] <= figure["x"] + figure["width"]
    assert figure["y"] <= tip["y"]
    assert tip["y"] + tip["height"] <= figure["y"] + figure["height"]
    assert page.locator("#heat .tip").evaluate("tip => tip.scrollWidth <= tip.clientWidth")
    start = datetime.fromisoformat("2026-03-01T00:00:00Z").timestamp() * 1e6
    return round(start + exactly * 20e6)


def lines(page: Page) -> list[str]:
    return page.locator("#heat .tip div").all_inner_texts()


def clock(us: int) -> str:
    return f"{us // 1_000_000 % 86_400 // 3600:02}:{us // 60_000_000 % 60:02}:{us // 1_000_000 % 60:02}.{us // 1000 % 1000:03}"


def test_a_cell_has_its_bounds_and_its_count(shown: Page, steps: Explorer) -> None:
    shown.goto(f"{steps.url}#source=packet&index=size&{WINDOW}")
    expect(shown.locator("#heat")).to_have_attribute("data-state", "shown")
    shown.locator("#heat .quiet").click()
    sql = shown.locator("#heat pre").text_content()
    shown.locator("#heat .quiet").click()
    with loom_duckdb.connect() as db:
        for part in (0.1025, 0.35, 0.6, 0.9):
            us = point(shown, part)
            under = (
                f"SELECT epoch_us(t1), epoch_us(t2), lower, upper, count FROM ({sql}) WHERE epoch_us(t1) <= {us} AND epoch_us(t2) > {us}"
            )
            ((t1, t2, lower, upper, count),) = db.execute(under).fetchall()
            values, records, times = lines(shown)
            assert values == f"{lower:.3g} {DASH} {upper:.3g}"
            assert records == f"{count} records"
            assert times.startswith("1 Mar")
            assert times.endswith(f", {clock(t1)} {DASH} {clock(t2)}")
            # A time of less than a tenth of a second behind the whole one keeps its zeroes.
            pointed = shown.locator("#heat .read").inner_text().split(", ")[1]
            assert clock(t1) <= pointed <= clock(t2)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    scheme = shown.locator("html").get_attribute("data-theme")
    shown.screenshot(path=SCREENSHOTS / f"cell-{shown.viewport_size['width']}-{scheme}.png")
    shown.mouse.move(0, 0)
    expect(shown.locator("#heat .tip")).to_be_hidden()
    expect(shown.locator("#heat .cell")).to_be_hidden()


@pytest.mark.parametrize("group", ["", "&group=kind"])
def test_a_cell_of_a_band_has_its_category_its_time_and_its_count(shown: Page, steps: Explorer, group: str) -> None:
    shown.goto(f"{steps.url}#source=packet&index=kind&{WINDOW}{group}")
    expect(shown.locator("#heat h2")).to_have_text("packet, records by kind")
    expect(shown.locator("#heat")).to_have_attribute("data-state", "shown")
    # Buckets of 0.2 s: 50 of their 200 records are of kind 2 in the first half.
    for part, top, name, count in ((0.2, 0.05, "1", 150), (0.2, 0.6, "2", 50), (0.8, 0.05, "1", 200), (0.8, 0.6, "2", 0)):
        us = point(shown, part, top)
        start = us // 200_000 * 200_000
        kind, records, times = lines(shown)
        assert (kind, records) == (name, f"{count} records")
        assert times.endswith(f", {clock(start)} {DASH} {clock(start + 200_000)}")
    scheme = shown.locator("html").get_attribute("data-theme")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    shown.screenshot(path=SCREENSHOTS / f"band-{shown.viewport_size['width']}-{scheme}.png")


@pytest.mark.parametrize(("index", "values"), [("kind", "1"), ("size", f"296 {DASH} 304")])
def test_a_cell_that_the_window_cuts_ends_with_it(page: Page, steps: Explorer, index: str, values: str) -> None:
    page.goto(f"{steps.url}#source=packet&index={index}&from=2026-03-01T00:00:10.03Z&to=2026-03-01T00:00:14.97Z&zone=utc")
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
    box = page.locator("#heat canvas.over").bounding_box()
    found = []
    for x in (box["x"] + 2, box["x"] + box["width"] - 2):
        top = page.locator("#heat canvas.over").evaluate(
            """(canvas, x) => {
                const box = canvas.getBoundingClientRect();
                for (let y = Math.ceil(box.top); y < box.bottom; y++) {
                    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: x, clientY: y, bubbles: true }));
                    if (!document.querySelector('#heat .tip').hidden) return y;
                }
            }""",
            x,
        )
        page.mouse.move(x, top + 1)
        found.append(lines(page))
    assert [first for first, _, _ in found] == [values] * 2
    first, last = (times.rpartition(", ")[2].split(f" {DASH} ") for _, _, times in found)
    assert first[0] == "00:00:10.030"
    assert last[1] == "00:00:14.970"
    for (_, records, _), times in zip(found, (first, last), strict=True):
        start, end = (round(float(time.rpartition(":")[2]) * 1000) for time in times)
        assert records == f"{end - start} records"


@pytest.mark.parametrize("parts", ["index=size", "index=size&group=kind", "index=kind", "index=size&with=before"])
def test_no_picture_moves_under_the_pointer(shown: Page, steps: Explorer, parts: str) -> None:
    shown.goto(f"{steps.url}#source=packet&{parts}&from=2026-03-01T00:00:00.5Z&to=2026-03-01T00:00:20.5Z&zone=utc")
    expect(shown.locator("#heat")).to_have_attribute("data-state", "shown")
    heights = "[...document.querySelectorAll('figcaption')].map((head) => head.offsetHeight)"
    before = shown.evaluate(heights)
    for name in ("rate", "heat"):
        canvas = shown.locator(f"#{name} canvas.over")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        for part in (0.3, 0.6, 0.999):
            shown.mouse.move(box["x"] + box["width"] * part, box["y"] + box["height"] / 2)
            assert shown.evaluate(heights) == before


def test_the_cell_stays_under_a_pointer_that_rests_while_the_window_moves(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#source=redis_request&index=latency&last=10")
    drawn(page)
    box = page.locator("#heat canvas.over").bounding_box()
    x = box["x"] + box["width"] / 2
    page.mouse.move(x, box["y"] + box["height"] / 2)
    under = page.locator("#heat .read").inner_text()
    for _ in range(3):
        refreshed(page)
        after = page.locator("#heat .read").inner_text()
        assert after != under, "the time under the pointer goes on"
        under = after
        cell = page.locator("#heat .cell")
        if cell.is_visible():
            place = cell.bounding_box()
            assert place["x"] - 1 <= x <= place["x"] + place["width"] + 1


def test_a_drag_hides_the_cell_until_it_ends(page: Page, steps: Explorer) -> None:
    page.goto(f"{steps.url}#source=packet&index=kind&{WINDOW}")
    expect(page.locator("#heat h2")).to_have_text("packet, records by kind")
    point(page, 0.2, 0.05)
    assert lines(page)[0] == "1"
    drag(page, 0.3, 0.2, 0.8, 0.7, release=False)
    expect(page.locator("#heat .tip")).to_be_hidden()
    page.mouse.up()
    expect(page.locator("#heat .tip div").first).to_have_text("2")
