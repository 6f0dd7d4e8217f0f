"""How fast the explorer's page is while records arrive: its first picture, and each interaction.

    INGESTD=target/release/ingestd .clients-venv/bin/python tests/page_speed.py [--records 30000000] [--rate 1000000] [--rounds 15]

`make bench-page` runs it in the environment that has the wheel. It records the demonstration's requests, system calls and packets, waits
for the records, and opens the page in Chromium. Prints a table: the median and the greatest of all rounds. The times include a few
milliseconds of the driver, except those of a selection: the page itself takes them, from the mouse to the next frame, because it lays out
the rest of the list before it answers the driver.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import loom_duckdb
from playwright.sync_api import Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 60_000
WINDOW = "source=redis_request&index=latency&last=60"
# The address has another window, and the picture shows it.
MOVED = """hash !== location.hash &&
    sql.includes(new URLSearchParams(location.hash.slice(1)).get("from")?.replace("T", " ").replace("Z", "+00"))"""
# Takes the time from the end of a drag to the frame that shows each of these selectors.
WATCH = """selectors => {
    let began;
    window.painted = {};
    addEventListener("pointerup", () => { began = performance.now(); }, { capture: true, once: true });
    new MutationObserver(() => {
        for (const selector of selectors.filter(selector => began && !(selector in painted) && document.querySelector(selector))) {
            painted[selector] = null;
            requestAnimationFrame(() => setTimeout(() => { painted[selector] = performance.now() - began; }));
        }
    }).observe(document.body, { subtree: true, childList: true, attributes: true });
}"""
SELECTED = {"select": "#selection[data-state=shown]", "select, with why": ".why[data-state=shown]"}
LIST = "#selection .records .table:not([aria-busy=true])"
COLD = "first picture, of a server that has just started"
ALL_ROWS = "select, until the list has all rows"
OWED = {"first picture": "≤ 1.5 s", COLD: "", ALL_ROWS: ""}


class Times:
    """The milliseconds of each quantity."""

    def __init__(self) -> None:
        """Begin without a time."""
        self.all: dict[str, list[float]] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Take the time of a block."""
        began = time.perf_counter()
        yield
        self.add(what, (time.perf_counter() - began) * 1000)

    def add(self, what: str, milliseconds: float) -> None:
        """Add a time."""
        self.all.setdefault(what, []).append(milliseconds)

    def print(self) -> None:
        """Print a line for each quantity."""
        print("| | p50 | max | owed | rounds |\n|---|---|---|---|---|")
        for what, times in self.all.items():
            print(f"| {what} | {statistics.median(times):.0f} ms | {max(times):.0f} ms | {OWED.get(what, '≤ 300 ms')} | {len(times)} |")


def main() -> None:
    """Record, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=30_000_000, help="in the directory before the page opens")
    parser.add_argument("--rate", type=int, default=1_000_000, help="records a second, of three sources together")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-page-") as place:
        directory = Path(place) / "demo.loom"
        # Long enough for the records and for all rounds; the demonstration ends with this program.
        demo = [os.environ.get("INGESTD", "target/release/ingestd"), "demo", directory, "--rate", options.rate, "--seconds", 3600]
        with running([*map(str, demo), "--keep", "8GiB"], subprocess.DEVNULL), loom_duckdb.connect() as db:
            deadline = time.monotonic() + 60 + 10 * options.records / options.rate
            while (held := records(db, directory)) < options.records:
                assert time.monotonic() < deadline, f"the demonstration recorded only {held} records"
                time.sleep(0.5)
            with running(
                [sys.executable, "-m", "loom_duckdb.explore", "--no-browser", "--port", "0", str(directory)], subprocess.PIPE
            ) as server:
                times = measure(server.stdout.readline().removeprefix("explore: ").strip(), options.rounds)
            now = records(db, directory)
    load = os.getloadavg()[0]
    print(f"{held:,} records when the page opened, {now:,} at the end; {options.rate:,} a second; load average {load:.1f}\n")
    times.print()


@contextmanager
def running(command: list[str], out: int) -> Iterator[subprocess.Popen]:
    """Run a program until the block ends."""
    with subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def records(db: duckdb.DuckDBPyConnection, directory: Path) -> int:
    """Count the records of all sources; 0 if the directory does not exist yet."""
    try:
        return int(db.execute(f"SELECT coalesce(sum(records), 0) FROM loom_sources('{directory}')").fetchall()[0][0])
    except duckdb.Error:
        return 0


def measure(url: str, rounds: int) -> Times:
    """Open the page and use it, again and again."""
    times = Times()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for number in range(rounds + 1):
            page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
            page.set_default_timeout(PATIENCE_MS)
            with times.of("first picture" if number else COLD):
                page.goto(f"{url}#{WINDOW.replace('last=60', 'last=0')}")
                page.wait_for_selector("#heat[data-state=shown]")
            if number:
                interact(page, url, times)
            page.close()
        browser.close()
    return times


def interact(page: Page, url: str, times: Times) -> None:
    """Use a window of a minute once in each way."""
    page.goto(f"{url}#{WINDOW}")
    refreshed(page, lambda: None)
    with times.of("filter"):
        line = page.locator("#filter-line")
        refreshed(page, lambda: (line.fill("op = 'GET'"), page.keyboard.press("Enter")), "sql.includes('filter :=')")
    with times.of("remove the filter"):
        refreshed(page, lambda: page.get_by_label("Remove op = 'GET'").click(), "!sql.includes('filter :=')")
    with times.of("group by"):
        refreshed(page, lambda: page.locator("#group").select_option("op"), "sql.includes('loom_bins')")
    refreshed(page, lambda: page.locator("#group").select_option(""))
    # In the list that was chosen from, an arrow would choose again.
    page.locator("#group").blur()
    for what, key in {"pan": "ArrowLeft", "zoom in": "+", "zoom out": "-"}.items():
        with times.of(what):
            refreshed(page, lambda key=key: page.keyboard.press(key), MOVED)
    refreshed(page, lambda: page.keyboard.press("l"))
    box = page.locator("#heat canvas.over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + box["height"] * 0.8, steps=5)
    page.evaluate(WATCH, [*SELECTED.values()])
    with times.of(ALL_ROWS):
        page.mouse.up()
        for selector in SELECTED.values():
            page.wait_for_selector(selector)
        page.wait_for_selector(LIST, state="attached")
    for what, selector in SELECTED.items():
        page.wait_for_function("selector => painted[selector] > 0", arg=selector)
        times.add(what, page.evaluate("selector => painted[selector]", selector))
    with times.of("open a record"):
        page.locator("#selection .records tbody tr").first.click()
        page.wait_for_selector("#near[data-state=shown]")


def refreshed(page: Page, act: Callable[[], object], shows: str = "true") -> None:
    """Act, and wait until the page has drawn the answers. `shows` says of the picture's SQL that it is theirs, because a tick draws too."""
    before = [page.locator("html").get_attribute("data-refreshes") or "0", page.evaluate("location.hash")]
    act()
    page.wait_for_function(
        f"""([refreshes, hash]) => {{
            const sql = document.querySelector("#rate pre").textContent;
            return Number(document.documentElement.dataset.refreshes) > Number(refreshes) && ({shows});
        }}""",
        arg=before,
    )


if __name__ == "__main__":
    main()
