"""The explorer's Why panel, in Chromium, and the same question of an agent."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pytest
from chromium import SCREENSHOTS, Start, browser, counted, drag, page, selected
from conftest import Explorer
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from playwright.sync_api import Page, expect

import loom_duckdb

__all__ = ["browser", "page"]

TIME = "sel_from=2026-03-01T00:00:02Z&sel_to=2026-03-01T00:00:08Z"


@pytest.fixture(scope="module")
def cache(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Explorer, Path]:
    """Show 10 s of requests, of which those of shard 7 that miss the cache are slow; `noise` has nothing to do with it."""
    place = tmp_path_factory.mktemp("cache")
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 100) AS ts, (i % 10)::UTINYINT AS shard, i % 3 > 0 AS hit,
                (hash(i) % 5)::UTINYINT AS noise,
                (100 + i % 50 + CASE WHEN i % 10 = 7 AND i % 3 = 0 THEN 5000 ELSE 0 END)::UINTEGER AS latency_us
            FROM range(100_000) AS numbers(i)) TO '{place}/request.parquet'"""
    )
    directory = place / "cache.loom"
    load = [ingestd, "load", str(directory), "--source", "request", "--ts", "ts", "--index", "latency_us", str(place / "request.parquet")]
    subprocess.run(load, check=True, capture_output=True)
    return explore(directory), directory


def differences(page: Page) -> list[str]:
    words = "names => names.map((name) => [...name.childNodes].map((word) => word.textContent).join(' '))"
    return page.locator(".why .difference .name").evaluate_all(words)


def test_the_panel_ranks_what_separates_the_selection_and_a_click_filters(page: Page, cache: tuple[Explorer, Path]) -> None:
    explorer, directory = cache
    page.goto(f"{explorer.url}#last=0&source=request&index=latency_us&{TIME}&v_min=1000&v_max=inf")
    selected(page)
    why = page.locator(".why")
    expect(why).to_have_attribute("data-state", "shown")
    first = differences(page)
    assert first[0] == "shard 7"
    assert "hit false" in first[:3]
    assert not any(text.startswith("noise") for text in first[:3])
    assert not any(text.startswith("latency_us") for text in first), "it separates the selection by definition"
    expect(why.locator("> .said")).to_contain_text("3 fields were compared with the other records of this time")
    page.locator(".why .head .quiet").click()
    with loom_duckdb.connect() as db:
        sql = page.locator(".why pre").inner_text()
        found = db.execute(f"SELECT selected, other FROM ({sql}) WHERE field = 'shard' AND value = '7'").fetchall()
        window = "t_from := '2026-03-01 00:00:02+00', t_to := '2026-03-01 00:00:08+00'"
        slow = f"FROM loom_scan('{directory}', 'request', {window}) WHERE shard = 7"
        exact = db.execute(f"SELECT count(*) FILTER (latency_us >= 1000), count(*) FILTER (latency_us < 1000) {slow}").fetchall()
        assert found == exact
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "why.png")
    before = counted(page)
    why.locator(".difference").first.click()
    expect(page.locator("#filter .chip")).to_have_count(1)
    assert page.locator("#filter .chip button").first.inner_text() == "shard = 7"
    selected(page)
    assert counted(page) == before, "all slow requests are of shard 7"
    page.reload()
    selected(page)
    page.get_by_label("Remove shard = 7").click()
    expect(page.locator("#filter .chip")).to_have_count(0)
    # The answer to the question before stands there until the new one comes.
    expect(why.locator(".difference .name").first).to_have_text("shard7")
    expect(why).to_have_attribute("data-state", "shown")
    assert differences(page) == first, "the same question has the same answer"


def test_a_selection_of_time_is_compared_with_the_time_before(page: Page, cache: tuple[Explorer, Path]) -> None:
    page.goto(f"{cache[0].url}#last=0&source=request&index=latency_us&sel_from=2026-03-01T00:00:05Z&sel_to=2026-03-01T00:00:08Z")
    selected(page)
    expect(page.locator(".why")).to_have_attribute("data-state", "shown")
    expect(page.locator(".why > .said")).to_contain_text(
        "fields were compared with the records before. No difference is more than coincidence"
    )
    expect(page.locator(".why select")).to_be_disabled()


@pytest.fixture(scope="module")
def calls(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Explorer, Path]:
    """Show 10 s of calls: each second one is `read`; of the others, those with the number 1 are all of host 9."""
    place = tmp_path_factory.mktemp("calls")
    fields = [
        """{ name = "number", type = "u16", labels = { 0 = "read", 1 = "it's, in", 7 = "42" } }""",
        """{ name = "host", type = "u8" }""",
        """{ name = "pid", type = "u8" }""",
    ]
    indexes = ["""{ name = "number", value = "number" }""", """{ name = "some", value = "number", where = "pid = 1" }"""]
    (place / "calls.toml").write_text(
        f"[[source]]\nname = 'calls'\ntime = 'own'\nfield = [{', '.join(fields)}]\nindex = [{', '.join(indexes)}]\n"
    )
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 500) AS ts,
                (CASE i % 4 WHEN 1 THEN 1 WHEN 3 THEN 7 ELSE 0 END)::USMALLINT AS number,
                (CASE i % 4 WHEN 1 THEN 9 ELSE i % 5 END)::UTINYINT AS host, (i // 4 % 2)::UTINYINT AS pid
            FROM range(20_000) AS numbers(i)) TO '{place}/calls.parquet'"""
    )
    directory = place / "calls.loom"
    load = [ingestd, "load", str(directory), "--source", "calls", "--fields", str(place / "calls.toml"), "--ts", "ts"]
    subprocess.run([*load, str(place / "calls.parquet")], check=True, capture_output=True)
    return explore(directory), directory


@pytest.mark.parametrize(("index", "only"), [("number", "true"), ("some", "pid = 1")])
def test_a_category_is_compared_with_the_rest_of_its_time(page: Page, calls: tuple[Explorer, Path], index: str, only: str) -> None:
    explorer, directory = calls
    page.goto(f"{explorer.url}#last=0&source=calls&index={index}")
    expect(page.locator("#heat h2")).to_have_text("calls, records by number")
    drag(page, 0.3, 0.7, 0.6, 0.8)
    chosen = selected(page)
    assert chosen["sel_where"] == "number IN ('it''s, in')"
    why, choice = page.locator(".why"), page.locator(".why select")
    expect(why).to_have_attribute("data-state", "shown")
    expect(choice).to_be_enabled()
    expect(choice).to_have_value("rest")
    expect(why.locator("> .said")).to_contain_text("2 fields were compared with the other records of this time")
    assert differences(page)[0] == "host 9"
    why.locator(".head .quiet").click()
    with loom_duckdb.connect() as db:
        found = db.execute(f"SELECT value, selected, other FROM ({why.locator('pre').inner_text()}) WHERE field = 'host'").fetchall()
        window = f"ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}'"
        is_chosen = "number = 'it''s, in'"
        exact = db.execute(
            f"""SELECT host::VARCHAR, count(*) FILTER ({is_chosen}), count(*) FILTER (NOT {is_chosen})
                FROM loom_scan('{directory}', 'calls') WHERE {window} AND {only} GROUP BY ALL"""
        ).fetchall()
        ((alike,),) = db.execute(
            f"SELECT count(*) FROM loom_scan('{directory}', 'calls') WHERE {window} AND {only} AND number = '42'"
        ).fetchall()
    assert sorted(found) == sorted(exact)
    assert counted(page) == sum(count for _, count, _ in exact) > 0
    choice.select_option("before")
    expect(why.locator("> .said")).to_contain_text("compared with the records before")
    # A label may look like a number.
    drag(page, 0.3, 0.4, 0.6, 0.5)
    assert selected(page)["sel_where"] == "number IN ('42')"
    assert counted(page) == alike > 0
    drag(page, 0.3, 0.2, 0.6, 0.5)
    assert selected(page)["sel_where"] == "number IN ('read', '42')"
    expect(choice).to_be_disabled()
    expect(choice).to_have_value("before")


def test_bounds_and_a_category_of_an_address_both_hold(page: Page, calls: tuple[Explorer, Path]) -> None:
    times = "sel_from=2026-03-01T00:00:02Z&sel_to=2026-03-01T00:00:04Z"
    page.goto(f"{calls[0].url}#last=0&source=calls&index=number&{times}&v_min=0&v_max=0&sel_where=number IN ('42')")
    selected(page)
    expect(page.locator("#selection .what")).to_contain_text("number 0 \N{EN DASH} 0  \N{MIDDLE DOT}  number IN ('42')")
    assert counted(page) == 0
    expect(page.locator(".why")).to_have_attribute("data-state", "shown")
    with loom_duckdb.connect() as db:
        assert db.execute(f"SELECT sum(selected) FROM ({page.locator('.why pre').text_content()})").fetchall() in ([(0,)], [(None,)])


def test_the_first_rows_hold_only_the_clearest_three_bins_of_a_counter(page: Page, explore: Start, shop: Path) -> None:
    times = "sel_from=2026-03-01T00:00:10Z&sel_to=2026-03-01T00:00:15Z"
    page.goto(f"{explore(shop).url}#last=0&source=request&index=latency_us&{times}")
    selected(page)
    expect(page.locator(".why")).to_have_attribute("data-state", "shown")
    first = differences(page)
    assert [name.split()[0] for name in first].count("id") == 3
    page.locator(".why .more").click()
    every = differences(page)
    assert every[: len(first)] == first
    assert [name.split()[0] for name in every].count("id") > 3
    assert len(set(every)) == len(every)


def test_a_source_with_a_long_name_fits_into_the_panel(page: Page, explore: Start, ingestd: str, tmp_path: Path) -> None:
    rows = "SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts, (1e6 + i)::UINTEGER AS latency_us FROM range(9000) AS n(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{tmp_path}/rows.parquet'")
    long = "requests_of_the_shop_behind_the_second_balancer"
    for source in ("request", long):
        load = [ingestd, "load", str(tmp_path / "two.loom"), "--source", source, "--ts", "ts", "--index", "latency_us"]
        subprocess.run([*load, str(tmp_path / "rows.parquet")], check=True, capture_output=True)
    page.goto(f"{explore(tmp_path / 'two.loom').url}#last=0&source=request&index=latency_us&{TIME}")
    selected(page)
    expect(page.locator(".why .sources tbody td").first).to_have_attribute("title", long)
    assert page.locator(".why").evaluate("panel => panel.scrollWidth <= panel.clientWidth")


def test_an_agent_gets_the_same_differences(cache: tuple[Explorer, Path]) -> None:
    async def ask() -> dict:
        server = StdioServerParameters(command=sys.executable, args=["-m", "loom_duckdb.mcp", str(cache[1])])
        async with Client(stdio_client(server)) as client:
            selection = {"t_from": "2026-03-01T00:00:02Z", "t_to": "2026-03-01T00:00:08Z", "index": "latency_us", "v_min": 1000}
            result = await client.call_tool("why", {"source": "request", **selection})
            assert not result.is_error, result
            return json.loads(result.content[0].text)

    # The browser has the loop of this thread.
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(asyncio.run, ask()).result()
    first = dict(zip(answer["columns"], answer["rows"][0], strict=True))
    assert (first["field"], first["value"], first["selected"], first["filter"]) == ("shard", "7", 2000, "shard = 7")
    assert answer["fields_compared"] == 3
    assert answer["losses"].startswith("none")
    with loom_duckdb.connect() as db:
        assert len(db.execute(answer["sql"]).fetchall()) >= len(answer["rows"])
