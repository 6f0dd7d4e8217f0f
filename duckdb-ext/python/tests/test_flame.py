"""The flame graph of a selection in the explorer, in Chromium."""

import subprocess
from pathlib import Path

import duckdb
import pytest
from chromium import PATIENCE_MS, SCREENSHOTS, Start, browser, page, selected
from conftest import Explorer
from playwright.sync_api import Browser, Locator, Page, expect

import loom_duckdb

__all__ = ["browser", "page"]

TIME = "sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:00:10Z"
LEVELS = 60
LARGEST = 5000

# 60 % of the samples on a processor are of `parse`, 30 % of the kernel's `copy`, 10 % of another thread. From the tenth second on, each
# stack is another one, and one is deep.
STACKS = f"""
    SELECT TIMESTAMP '2026-03-01' AS ts, * FROM (VALUES
        (1::UBIGINT, 'main;serve;parse', NULL),
        (2, 'main;serve;write', 'entry;copy'),
        (3, 'main;tidy', NULL),
        (4, 'main;serve;wait', 'entry;schedule'),
        (6, 'main' || repeat(';again', {LEVELS + 40}), NULL)) AS known(stack, program, kernel)
    UNION ALL SELECT TIMESTAMP '2026-03-01 00:00:10', 100 + i, 'main;f' || i, NULL FROM range({LARGEST + 10}) AS numbers(i)
"""
SAMPLES = f"""
    SELECT TIMESTAMP '2026-03-01' + to_milliseconds(i * 100) AS ts,
        CASE WHEN i % 10 < 6 THEN 1 WHEN i % 10 < 9 THEN 2 ELSE 3 END::UBIGINT AS stack,
        NULL::UBIGINT AS off_ns, if(i % 10 < 9, 7, 8)::UINTEGER AS tid, if(i % 10 < 9, 'server', 'tidy') AS comm
    FROM range(100) AS numbers(i)
    UNION ALL SELECT TIMESTAMP '2026-03-01' + to_milliseconds(i * 500 + 50), 4, 1_500_000, 7, 'server' FROM range(20) AS numbers(i)
    UNION ALL SELECT TIMESTAMP '2026-03-01 00:00:11', 100 + i, NULL, 7, 'server' FROM range({LARGEST + 10}) AS numbers(i)
    UNION ALL SELECT TIMESTAMP '2026-03-01 00:00:11', 6, NULL, 7, 'server' FROM range(5000)
    UNION ALL SELECT TIMESTAMP '2026-03-01 00:00:12' + to_milliseconds(i), 4, 2_000_000, 7, 'server' FROM range(5) AS numbers(i)
"""
REQUESTS = """
    SELECT TIMESTAMP '2026-03-01' + to_milliseconds(i * 10) AS ts, (i % 100)::UINTEGER AS latency_us, (7 + i % 2)::UINTEGER AS tid,
        if(i % 3 = 0, 'SET', 'GET') AS op
    FROM range(2000) AS numbers(i)
"""


@pytest.fixture(scope="module")
def profiled(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Explorer, Path]:
    """Show requests, and a profile in the form of `ingestd record profile --off-cpu`."""
    place = tmp_path_factory.mktemp("profiled")
    directory = place / "profiled.loom"
    for source, rows, index in (("request", REQUESTS, "latency_us"), ("stack", STACKS, None), ("profile", SAMPLES, "off_ns")):
        duckdb.connect().execute(f"COPY ({rows}) TO '{place}/{source}.parquet'")
        indexed = [] if index is None else ["--index", index]
        load = [ingestd, "load", str(directory), "--source", source, "--ts", "ts", *indexed, str(place / f"{source}.parquet")]
        subprocess.run(load, check=True, capture_output=True)
    return explore(directory), directory


def shown(page: Page, explorer: Explorer, address: str = f"source=request&{TIME}") -> Locator:
    """Open a selection, and return its flame graph."""
    page.goto("about:blank")
    page.goto(f"{explorer.url}#last=0&zone=utc&{address}")
    selected(page)
    flame = page.locator(".flame")
    expect(flame).to_have_attribute("data-state", "shown")
    return flame


def frames(flame: Locator) -> list[str]:
    """Return the names of the drawn functions, from the left to the right and from the top to the bottom."""
    order = "(a, b) => parseFloat(a.style.top) - parseFloat(b.style.top) || parseFloat(a.style.left) - parseFloat(b.style.left)"
    return flame.locator(".graph button").evaluate_all(f"all => all.sort({order}).map(each => each.frame.name)")


def frame(flame: Locator, name: str) -> Locator:
    return flame.get_by_role("button", name=name, exact=True)


def share(flame: Locator, name: str) -> float:
    return frame(flame, name).bounding_box()["width"] / flame.locator(".graph").bounding_box()["width"]


def test_the_width_of_a_function_is_its_exact_share(page: Page, profiled: tuple[Explorer, Path]) -> None:
    flame = shown(page, profiled[0])
    expect(flame.locator("> .said")).to_have_text("100 samples of all threads.")
    assert frames(flame) == [
        "all threads on the processors", "server", "tidy", "main", "main", "serve", "tidy", "parse", "write", "entry", "copy",
    ]  # fmt: skip
    for name, part in {"server": 0.9, "serve": 0.9, "parse": 0.6, "write": 0.3, "copy": 0.3}.items():
        assert share(flame, name) == pytest.approx(part, abs=0.01)
    frame(flame, "parse").hover()
    expect(flame.locator(".pointed")).to_have_text("parse  60 samples, 60 %")
    frame(flame, "copy").hover()
    expect(flame.locator(".pointed")).to_have_text("copy (kernel)  30 samples, 30 %")
    flame.get_by_text("Show SQL").click()
    with loom_duckdb.connect() as db:
        rows = db.execute(flame.locator("pre").inner_text()).fetchall()
        window = "ts >= '2026-03-01' AND ts < '2026-03-01 00:00:10' AND off_ns IS NULL"
        db.execute("SET TimeZone = 'UTC'")
        ((plain,),) = db.execute(f"SELECT count(*) FROM loom_scan('{profiled[1]}', 'profile') WHERE {window}").fetchall()
    assert rows == [
        ("server;main;serve;parse", 60, 100, 3),
        ("server;main;serve;write;entry_[k];copy_[k]", 30, 100, 3),
        ("tidy;main;tidy", 10, 100, 3),
    ]
    assert sum(row[1] for row in rows) == plain


def test_a_click_zooms_and_the_keyboard_goes_through_the_functions(page: Page, profiled: tuple[Explorer, Path]) -> None:
    flame = shown(page, profiled[0])
    frame(flame, "serve").click()
    assert share(flame, "serve") == pytest.approx(1, abs=0.01)
    assert share(flame, "parse") == pytest.approx(2 / 3, abs=0.01)
    expect(frame(flame, "tidy")).to_have_count(0)
    frame(flame, "write").hover()
    expect(flame.locator(".pointed")).to_have_text("write  30 samples, 30 % (33.3 % of serve)")
    frame(flame, "all threads on the processors").click()
    before = page.url
    # The graph is one stop of the Tab key; the arrows go on.
    flame.get_by_label("Find a function").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(frame(flame, "all threads on the processors")).to_be_focused()
    for key, name in {"ArrowDown": "server", "ArrowRight": "tidy", "ArrowLeft": "server"}.items():
        page.keyboard.press(key)
        focused = page.evaluate("document.activeElement.frame.name")
        assert focused == name
        expect(flame.locator(".pointed")).to_contain_text(f"{name}  ")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(frame(flame, "serve")).to_be_focused()
    assert share(flame, "serve") == pytest.approx(1, abs=0.01)
    page.keyboard.press("Escape")
    assert share(flame, "serve") == pytest.approx(1, abs=0.01), "all of main is in serve"
    for _ in range(2):
        page.keyboard.press("Escape")
    assert share(flame, "serve") == pytest.approx(0.9, abs=0.01)
    expect(page.locator("#selection")).to_be_visible()
    assert page.url == before, "the keys do not move the window"


def test_a_text_marks_functions_and_says_their_share(page: Page, profiled: tuple[Explorer, Path]) -> None:
    flame = shown(page, profiled[0])
    flame.get_by_label("Find a function").fill("TIDY")
    # The thread and its function are both found, and its samples count once.
    expect(flame.locator(".match")).to_have_count(2)
    expect(flame.locator(".found")).to_have_text("10 % found")
    flame.get_by_label("Find a function").fill("")
    expect(flame.locator(".match")).to_have_count(0)


def test_times_off_the_processors_are_apart(page: Page, profiled: tuple[Explorer, Path]) -> None:
    flame = shown(page, profiled[0])
    on = frame(flame, "parse").evaluate("each => getComputedStyle(each).backgroundColor")
    flame.get_by_text("Off CPU").click()
    expect(flame.locator("> .said")).to_have_text("20 times off the processors of all threads, 30 ms in all.")
    assert frames(flame) == ["all threads off the processors", "server", "main", "serve", "wait", "entry", "schedule"]
    frame(flame, "schedule").hover()
    expect(flame.locator(".pointed")).to_have_text("schedule (kernel)  30 ms, 100 %")
    assert frame(flame, "wait").evaluate("each => getComputedStyle(each).backgroundColor") != on
    # Without a sample on a processor, these are shown at once.
    alone = shown(page, profiled[0], "source=request&sel_from=2026-03-01T00:00:12Z&sel_to=2026-03-01T00:00:13Z")
    expect(alone.locator("> .said")).to_have_text("5 times off the processors of all threads, 10 ms in all.")
    alone.get_by_text("On CPU").click()
    expect(alone.locator("> .said")).to_contain_text("No sample of all threads lies in this time. The profile reaches from")
    expect(alone.locator(".graph button")).to_have_count(0)


def test_conditions_on_threads_hold_for_the_samples(page: Page, profiled: tuple[Explorer, Path]) -> None:
    of_tid = shown(page, profiled[0], f"source=request&{TIME}&filter=tid+%3D+8+AND+op+%3D+'GET'")
    expect(of_tid.locator("> .said")).to_have_text("10 samples with tid = 8.")
    assert frames(of_tid) == ["all threads on the processors", "tidy", "main", "tidy"]
    # A selection of the profile itself is one of its samples, whatever their fields; its graph is above the list.
    own = shown(page, profiled[0], f"source=profile&index=off_ns&{TIME}&v_min=1000000&v_max=inf&filter=comm+LIKE+'ser%25'")
    expect(own.locator("> .said")).to_have_text("20 times off the processors with comm LIKE 'ser%' AND off_ns >= 1000000, 30 ms in all.")
    assert own.bounding_box()["y"] < page.locator("#selection .body").bounding_box()["y"]
    none = shown(page, profiled[0], f"source=request&{TIME}&filter=tid+%3D+99")
    expect(none.locator("> .said")).to_contain_text("No sample with tid = 99 lies in this time.")


def test_what_is_not_drawn_is_said(page: Page, profiled: tuple[Explorer, Path]) -> None:
    flame = shown(page, profiled[0], "source=request&sel_from=2026-03-01T00:00:11Z&sel_to=2026-03-01T00:00:12Z")
    total = 2 * LARGEST + 10
    drawn = LARGEST + LARGEST - 1
    cut = f"The 5,000 largest of {LARGEST + 11:,} stacks are drawn, 99.9 % of the whole."
    expect(flame.locator("> .said")).to_have_text(f"{total:,} samples of all threads. {cut}")
    expect(flame.locator(".pointed")).to_contain_text(f"deeper than {LEVELS} levels or narrower than 2 pixels are not drawn; zoom")
    assert share(flame, "server") == pytest.approx(drawn / total, abs=0.01)
    # A zoom into the deepest function shows the rest.
    deepest = flame.locator(".graph button").last
    assert flame.locator(".graph button").count() == LEVELS
    deepest.click()
    expect(flame.locator(".pointed")).not_to_contain_text("deeper")
    # The root, the thread and all functions of the deep stack.
    expect(flame.locator(".graph button")).to_have_count(2 + 1 + LEVELS + 40)


def test_a_directory_without_a_profile_has_no_graph(page: Page, explore: Start, shop: Path) -> None:
    page.goto(f"{explore(shop).url}#last=0&sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:00:10Z")
    selected(page)
    expect(page.locator(".why")).to_have_attribute("data-state", "shown")
    expect(page.locator(".flame")).to_be_hidden()


@pytest.mark.parametrize("width", [420, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_graph_fits(browser: Browser, profiled: tuple[Explorer, Path], width: int, scheme: str) -> None:
    with browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=scheme) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        flame = shown(page, profiled[0])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        graph = flame.locator(".graph").bounding_box()
        for box in (each.bounding_box() for each in flame.locator(".graph button").all()):
            assert graph["x"] <= box["x"]
            assert box["x"] + box["width"] <= graph["x"] + graph["width"] + 1
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"flame-{scheme}-{width}.png", full_page=True)
