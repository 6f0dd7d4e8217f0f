"""Tests the site of the pages: every link and anchor of the pages works on it, and the search finds them."""

import os
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from dist import DIST, ROOT
from playwright.sync_api import sync_playwright

import pages

SITE = DIST / "html"
CHROMIUM = Path("/usr/bin/chromium")


class Page(HTMLParser):
    """The anchors of an HTML page, and the addresses that it names."""

    def __init__(self, text: str) -> None:
        """Read it."""
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect."""
        for name, value in attributes:
            if name == "id":
                self.anchors.add(value)
            elif name in ("href", "src"):
                self.addresses.append(value)


def test_no_link_and_no_anchor_of_the_site_is_dead() -> None:
    read = {file: Page(file.read_text()) for file in SITE.rglob("*.html")}
    dead = []
    for file, page in read.items():
        for address in page.addresses:
            path, _, anchor = unquote(address).partition("#")
            target = Path(os.path.normpath(file.parent / path)) if path else file
            exists = pages.leads_away(address) or (target.is_file() and (not anchor or anchor in read[target].anchors))
            dead += [] if exists else [f"{file.relative_to(SITE)}: {address}"]
    assert dead == []
    markdown = [file for file in pages.reachable(ROOT / "README.md") if file.suffix == ".md"]
    assert len(read) > len(markdown) > 20


def test_the_search_finds_a_function_and_its_page() -> None:
    assert CHROMIUM.exists(), "the tests drive Debian's Chromium; run 'apt-get install chromium'"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        # The site is read from files, as a package installs it.
        page = browser.new_page()
        page.set_default_timeout(180_000)
        page.goto(f"{(SITE / 'index.html').as_uri()}?search=loom_top")
        page.get_by_role("link", name="Query records » loom_top").click()
        page.wait_for_url("**/sql/docs/records.html*#loom_top*")
        browser.close()
