"""Chromium for the tests of the explorer's page, and what they do in it."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import Explorer, until
from playwright.sync_api import Browser, Page, expect, sync_playwright

SCREENSHOTS = Path(__file__).resolve().parents[3] / "target" / "screenshots"
CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 180_000
expect.set_options(timeout=PATIENCE_MS)

Start = Callable[..., Explorer]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM.exists(), "the tests drive Debian's Chromium; run 'apt-get install chromium'"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """Open an empty page, whose errors fail the test."""
    errors: list[str] = []
    with browser.new_context(viewport={"width": 1280, "height": 900}, timezone_id="Europe/Zurich") as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
    assert errors == []


@pytest.fixture(scope="module")
def watching(explore: Start, live: Path) -> Explorer:
    return explore(live, "--timeout", "30")


def refreshes(page: Page) -> int:
    return int(page.locator("html").get_attribute("data-refreshes") or 0)


def drawn(page: Page) -> None:
    """Wait until the page has drawn its answers."""
    page.wait_for_selector("html[data-refreshes]", state="attached")


def refreshed(page: Page) -> None:
    """Wait for one more refresh."""
    before = refreshes(page)
    until(lambda: refreshes(page) > before)


def drag(page: Page, left: float, top: float, right: float, bottom: float, *, release: bool = True) -> None:
    """Drag over the heat map, by fractions of its width and height."""
    box = page.locator("#heat canvas.over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * left, box["y"] + box["height"] * top)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * right, box["y"] + box["height"] * bottom, steps=5)
    if release:
        page.mouse.up()


def selected(page: Page) -> dict[str, str]:
    """Wait for the selection's rows, and return the state in the address."""
    page.wait_for_selector("#selection[data-state=shown] .records .table[aria-busy=false]", state="attached")
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def counted(page: Page) -> int:
    return int(re.sub(r"\D", "", page.locator("#selection .title strong").inner_text()))
