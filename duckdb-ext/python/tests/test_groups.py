"""Groups in the explorer: by a label or a small integer, and an index of codes as bands, in Chromium."""

import re
import subprocess
from pathlib import Path

import duckdb
import pytest
from chromium import SCREENSHOTS, Start, browser, counted, drag, drawn, page, selected, watching
from conftest import Explorer
from playwright.sync_api import Page, expect

import loom_duckdb

__all__ = ["browser", "page", "watching"]


@pytest.fixture(scope="module")
def ports(explore: Start, ingestd: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Explorer, Path]:
    """Show packets to ports 1 to 20, of which port n has n parts of 210, and an index on the port."""
    place = tmp_path_factory.mktemp("ports")
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts, i AS id,
                ceil((sqrt(8 * (i % 210 + 1) + 1) - 1) / 2)::USMALLINT AS port, (i % 100)::UINTEGER AS size
            FROM range(21_000) AS numbers(i)) TO '{place}/packet.parquet'"""
    )
    directory = place / "ports.loom"
    indexes = ["--index", "port", "--index", "size"]
    load = [ingestd, "load", str(directory), "--source", "packet", "--ts", "ts", *indexes, str(place / "packet.parquet")]
    subprocess.run(load, check=True, capture_output=True)
    return explore(directory), directory


def test_a_label_gives_a_line_for_each_value(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    page.locator("#group").select_option("op")
    expect(page.locator("#rate h2")).to_have_text("redis_request per second, by op")
    expect(page.locator("#quantiles h2")).to_have_text("redis_request latency, p99 by op")
    page.locator("#quantiles .quiet").click()
    with loom_duckdb.connect() as db:
        found = db.execute(
            f"SELECT value FROM ({page.locator('#quantiles pre').inner_text()}) GROUP BY value ORDER BY sum(count) DESC"
        ).fetchall()
    assert {value for (value,) in found} == {"GET", "SET", "INCR", "HGET", "LPUSH"}
    for picture in ("rate", "quantiles"):
        expect(page.locator(f"#{picture} .legend button")).to_have_count(5)
    assert "group=op" in page.url
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "groups.png")
    page.locator("#rate .legend button", has_text="LPUSH").click()
    expect(page.locator("#filter .chip")).to_have_count(1)
    assert page.locator("#filter .chip button").first.inner_text() == "op = 'LPUSH'"


def test_the_ten_largest_have_a_line_and_the_rest_another(page: Page, ports: tuple[Explorer, Path]) -> None:
    page.goto(f"{ports[0].url}#last=0&source=packet&index=size&group=port")
    names = [*map(str, range(20, 10, -1)), "all others"]
    for picture in ("rate", "quantiles"):
        expect(page.locator(f"#{picture} .legend button")).to_have_count(11)
        shown = page.locator(f"#{picture} .legend button").all_inner_texts()
        assert [text.splitlines()[0].strip() for text in shown] == names
    page.locator("#rate .quiet").click()
    with loom_duckdb.connect() as db:
        sql = page.locator("#rate pre").inner_text()
        found = dict(db.execute(f"SELECT value, sum(count)::BIGINT FROM ({sql}) GROUP BY value").fetchall())
        assert found == {**{str(port): port * 100 for port in range(11, 21)}, None: 5500}
        shown = dict(db.execute(f"SELECT bucket, p99 FROM ({sql}) WHERE value = '20'").fetchall())
        bucket = re.search(r"ts_ns // \d+ \* \d+", sql)[0]
        records = f"loom_scan('{ports[1]}', 'packet', filter := 'port = 20')"
        exact = dict(db.execute(f"SELECT {bucket}, quantile_disc(size, 0.99) FROM {records} GROUP BY 1").fetchall())
        assert shown.keys() == exact.keys()
        assert all(abs(shown[at] - value) <= value / 64 for at, value in exact.items())


def test_an_index_of_codes_has_a_band_for_each_and_a_brush_selects_bands(page: Page, ports: tuple[Explorer, Path]) -> None:
    page.goto(f"{ports[0].url}#last=0&source=packet&index=port")
    expect(page.locator("#heat h2")).to_have_text("packet, records by port")
    expect(page.locator("#quantiles")).to_be_hidden()
    drag(page, 0.2, 0.06, 0.8, 0.2)
    chosen = selected(page)
    ports_chosen = re.fullmatch(r"port IN \((20, 19.*)\)", chosen["sel_where"])[1]
    assert ports_chosen in ("20, 19", "20, 19, 18")
    with loom_duckdb.connect() as db:
        window = f"ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}'"
        ((count,),) = db.execute(
            f"SELECT count(*) FROM loom_scan('{ports[1]}', 'packet') WHERE {window} AND port IN ({ports_chosen})"
        ).fetchall()
    assert counted(page) == count > 0
    page.screenshot(path=SCREENSHOTS / "bands.png")
    page.reload()
    selected(page)
    assert counted(page) == count


def test_a_field_of_the_address_that_is_not_there_is_reported(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#group=nothing")
    expect(page.locator("#notice")).to_contain_text("The field 'nothing' of redis_request cannot be grouped by")
    expect(page.locator("#rate h2")).to_have_text("Records per second")
