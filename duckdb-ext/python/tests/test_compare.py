"""Two windows side by side in the explorer, of one directory or of two, in Chromium."""

import subprocess
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb
import pytest
from chromium import SCREENSHOTS, Start, browser, drawn, page, refreshed, watching
from conftest import Explorer
from playwright.sync_api import Browser, Page, expect
from test_metrics import app

import loom_duckdb

__all__ = ["app", "browser", "page", "watching"]

DASH = "\N{EN DASH}"
BESIDE = ("rate", "quantiles", "heat")


def deploy(ingestd: str, place: Path, name: str, slower: int) -> Path:
    """Write a directory of 20 s: `slower` times the latency in its second half, and one of three codes, most of them 400 in that half."""
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts,
                ((i % 100 + 1) * if(i >= 10_000, {slower}, 1))::UINTEGER AS latency_us,
                (200 + 100 * if(i >= 10_000 AND i % 10 < 8, 2, i % 3))::USMALLINT AS status
            FROM range(20_000) AS numbers(i)) TO '{place}/{name}.parquet'"""
    )
    directory = place / f"{name}.loom"
    indexes = ["--index", "latency_us", "--index", "status"]
    load = [ingestd, "load", str(directory), "--source", "request", "--ts", "ts", *indexes, str(place / f"{name}.parquet")]
    subprocess.run(load, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def deploys(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    place = tmp_path_factory.mktemp("deploys")
    return explore(deploy(ingestd, place, "old", 4), deploy(ingestd, place, "new", 40), "--timeout", "60")


WINDOW = "source=request&index=latency_us&from=2026-03-01T00:00:10Z&to=2026-03-01T00:00:20Z&zone=utc"


def addressed(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def ask(page: Page, picture: str) -> list[tuple]:
    """Run the SQL that a picture shows."""
    page.locator(f"#{picture} .quiet").click()
    with loom_duckdb.connect() as db:
        return db.execute(page.locator(f"#{picture} pre").inner_text()).fetchall()


def labels_of_scales(page: Page, picture: str) -> str:
    """Return the left side of a picture above its times, with the labels of its scale, as an image."""
    return page.evaluate(
        """(id) => {
            const canvas = document.querySelector(`#${id} canvas`);
            const part = document.createElement("canvas");
            const ratio = devicePixelRatio;
            Object.assign(part, { width: 64 * ratio, height: canvas.height - 30 * ratio });
            part.getContext("2d").drawImage(canvas, 0, 0);
            return part.toDataURL();
        }""",
        picture,
    )


def test_the_window_before_is_beside_the_window_on_the_same_scale(page: Page, deploys: Explorer) -> None:
    page.goto(f"{deploys.url}#{WINDOW}")
    drawn(page)
    for picture in BESIDE:
        expect(page.locator(f"#{picture}-beside")).to_be_hidden()
        expect(page.locator(f"#{picture} .side")).to_be_hidden()
    alone = {picture: labels_of_scales(page, picture) for picture in BESIDE}
    page.keyboard.press("c")
    expect(page.locator("#compare")).to_be_focused()
    page.locator("#compare").select_option(label="the window before")
    for picture in BESIDE:
        expect(page.locator(f"#{picture} .side")).to_have_text(f"this window, 1 Mar, 00:00:10 {DASH} 00:00:20")
        expect(page.locator(f"#{picture}-beside .side")).to_have_text(f"the window before, 1 Mar, 00:00:00 {DASH} 00:00:10")
        assert labels_of_scales(page, picture) == labels_of_scales(page, f"{picture}-beside")
    # The slow half alone has a scale that does not reach down to the fast half.
    assert labels_of_scales(page, "heat") != alone["heat"]
    assert addressed(page)["with"] == "before"
    assert max(row[4] for row in ask(page, "quantiles")) == 400
    assert max(row[4] for row in ask(page, "quantiles-beside")) == 100
    page.reload()
    expect(page.locator("#heat-beside .side")).to_have_text(f"the window before, 1 Mar, 00:00:00 {DASH} 00:00:10")
    page.locator("#compare").select_option(label="nothing")
    for picture in BESIDE:
        expect(page.locator(f"#{picture}-beside")).to_be_hidden()
    assert "with" not in addressed(page)


def test_a_window_of_another_directory_is_beside_the_window(page: Page, deploys: Explorer) -> None:
    page.goto(f"{deploys.url}#{WINDOW}&filter=status+%3D+200")
    drawn(page)
    page.locator("#compare").select_option(label="new.loom, the same time")
    expect(page.locator("#heat .side")).to_have_text(f"old.loom, this window, 1 Mar, 00:00:10 {DASH} 00:00:20")
    expect(page.locator("#heat-beside .side")).to_have_text(f"new.loom, the same time, 1 Mar, 00:00:10 {DASH} 00:00:20")
    assert max(row[4] for row in ask(page, "quantiles")) <= 400
    assert max(row[4] for row in ask(page, "quantiles-beside")) > 3000
    assert labels_of_scales(page, "heat") == labels_of_scales(page, "heat-beside")
    # The filter holds for both.
    assert "status = 200" in page.locator("#quantiles-beside pre").inner_text()
    # A pointer in one window shows the same moment of the other.
    box = page.locator("#heat-beside canvas.over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#quantiles .legend")).to_contain_text("p50")
    # A brush selects in the window itself, and a selection keeps the comparison.
    own = page.locator("#heat canvas.over").bounding_box()
    page.mouse.move(own["x"] + own["width"] * 0.3, own["y"] + own["height"] * 0.1)
    page.mouse.down()
    page.mouse.move(own["x"] + own["width"] * 0.7, own["y"] + own["height"] * 0.7, steps=5)
    page.mouse.up()
    page.wait_for_selector("#selection[data-state=shown]")
    assert addressed(page)["with_dir"].endswith("/new.loom")


def test_a_chosen_time_is_beside_the_window(page: Page, deploys: Explorer) -> None:
    page.goto(f"{deploys.url}#{WINDOW}")
    drawn(page)
    page.locator("#compare").select_option(label="a chosen time")
    expect(page.locator("#compare-time")).to_have_value("2026-03-01T00:00:10")
    page.locator("#compare-time").fill("2026-03-01T00:00:05")
    page.locator("#compare-time").blur()
    expect(page.locator("#rate-beside .side")).to_have_text(f"a chosen time, 1 Mar, 00:00:05 {DASH} 00:00:15")
    assert addressed(page)["with"] == "2026-03-01T00:00:05Z"


def test_codes_are_bands_with_the_same_shades_and_groups_have_the_same_colours(page: Page, deploys: Explorer) -> None:
    page.goto(f"{deploys.url}#{WINDOW.replace('latency_us', 'status')}&group=status&with=before")
    expect(page.locator("#heat-beside h2")).to_have_text("request, records by status")
    keys = {}
    for picture in ("rate", "rate-beside"):
        expect(page.locator(f"#{picture} .legend button")).to_have_count(3)
        buttons = page.locator(f"#{picture} .legend button").all()
        keys[picture] = {
            button.inner_text().split()[0]: button.locator("i").evaluate("(key) => key.style.getPropertyValue('--of')")
            for button in buttons
        }
    assert keys["rate"] == keys["rate-beside"]
    scales = [page.locator(f"#{picture} .legend").inner_text().splitlines()[0] for picture in ("heat", "heat-beside")]
    assert scales[0] == scales[1]


def test_a_directory_that_is_not_served_is_not_compared(page: Page, deploys: Explorer) -> None:
    page.goto(f"{deploys.url}#{WINDOW}&with=before&with_dir=/nowhere.loom")
    expect(page.locator("#notice")).to_contain_text("The explorer was not given the directory /nowhere.loom")
    expect(page.locator("#heat-beside")).to_be_hidden()


@pytest.mark.parametrize(
    ("comparison", "of", "name", "needed"),
    [
        ("same", None, "the same time", "another"),
        ("newest", None, "its newest records", "another"),
        ("same", "old.loom", "the same time", "another"),
        ("newest", "old.loom", "its newest records", "another"),
        ("before", "new.loom", "the window before", "the shown"),
    ],
)
def test_an_address_with_a_comparison_that_the_list_does_not_have_compares_nothing(
    page: Page, deploys: Explorer, comparison: str, of: str | None, name: str, needed: str
) -> None:
    page.goto(deploys.url)
    drawn(page)
    directory = page.locator("#dir option", has_text=of).get_attribute("value") if of else ""
    page.goto(f"{deploys.url}#{WINDOW}&with={comparison}" + (f"&with_dir={directory}" if of else ""))
    expect(page.locator("#notice")).to_contain_text(f"'{name}' compares with {needed} directory, so the window is not compared")
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
    expect(page.locator("#heat-beside")).to_be_hidden()
    expect(page.locator("#compare option:checked")).to_have_text("nothing")


def test_an_address_may_name_the_shown_directory(page: Page, deploys: Explorer) -> None:
    page.goto(deploys.url)
    drawn(page)
    directory = page.locator("#dir").input_value()
    page.goto(f"{deploys.url}#{WINDOW}&with=before&with_dir={directory}")
    expect(page.locator("#heat-beside .side")).to_have_text(f"the window before, 1 Mar, 00:00:00 {DASH} 00:00:10")
    expect(page.locator("#compare option:checked")).to_have_text("the window before")


def test_a_refresh_leaves_the_list_as_it_is(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    # An open list closes if its options are replaced.
    page.locator("#compare option").first.evaluate("(option) => { option.dataset.kept = ''; }")
    refreshed(page)
    expect(page.locator("#compare option[data-kept]")).to_have_count(1)


def test_a_comparison_of_a_source_of_series_can_be_ended(page: Page, app: tuple[Explorer, Path]) -> None:
    page.goto(f"{app[0].url}#last=0&with=before")
    expect(page.locator("#rate-beside .side")).to_contain_text("the window before")
    expect(page.locator("#compare")).to_be_visible()
    expect(page.locator("#filter-line")).to_be_hidden()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "compare-metrics.png")
    page.locator("#compare").select_option(label="nothing")
    expect(page.locator("#rate-beside")).to_be_hidden()
    assert "with" not in addressed(page)


def test_a_live_window_and_the_one_before_move_together(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#last=60&with=before")
    side = page.locator("#rate-beside .side")
    expect(side).to_contain_text("the window before")
    first = side.inner_text()
    expect(side).not_to_have_text(first)


@pytest.mark.parametrize("width", [420, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_windows_fit(browser: Browser, deploys: Explorer, width: int, scheme: str) -> None:
    with browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme) as context:
        page = context.new_page()
        page.goto(f"{deploys.url}#{WINDOW}&with=before")
        expect(page.locator("#heat-beside .side")).to_be_visible()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width
        tops = [page.locator(f"#{picture}").bounding_box()["y"] for picture in ("heat", "heat-beside")]
        assert (tops[0] == tops[1]) == (width > 900)
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"compare-{scheme}-{width}.png", full_page=True)
