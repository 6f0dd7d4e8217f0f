"""Groups in the explorer: by a label or a small integer, and an index of codes as bands, in Chromium."""

import re
import subprocess
from pathlib import Path

import duckdb
import pytest
from chromium import SCREENSHOTS, Start, browser, counted, drag, drawn, page, selected, watching
from conftest import Explorer
from playwright.sync_api import Page, Route, expect

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


def framed(page: Page, left: float, top: float) -> bool:
    """Whether the selection covers a place of the heat map, by fractions of its width and height."""
    canvas = page.locator("#heat canvas.over")
    pixel = "(canvas, [x, y]) => canvas.getContext('2d').getImageData(canvas.width * x, canvas.height * y, 1, 1).data[3] > 0"
    return canvas.evaluate(pixel, [left, top])


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


# The last names are also those of columns in the page's SQL.
@pytest.mark.parametrize(
    ("kind", "of", "value", "scans"),
    [
        ("kind", "UTINYINT", "size", 1),
        ("bucket", "VARCHAR", "value", 2),
        ("found", "VARCHAR", "record", 2),
        ("value", "UTINYINT", "found", 1),
    ],
)
def test_groups_are_those_of_plain_sql(
    page: Page, explore: Start, ingestd: str, tmp_path: Path, kind: str, of: str, value: str, scans: int
) -> None:
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts, (i % 97 % 13)::{of} AS {kind},
                (i % 101)::UINTEGER AS {value} FROM range(20_000) AS numbers(i)) TO '{tmp_path}/few.parquet'"""
    )
    directory = tmp_path / "few.loom"
    load = [ingestd, "load", str(directory), "--source", "packet", "--ts", "ts", "--index", value, str(tmp_path / "few.parquet")]
    subprocess.run(load, check=True, capture_output=True)
    page.goto(f"{explore(directory).url}#last=0&source=packet&index={value}&group={kind}")
    expect(page.locator("#rate .legend button")).to_have_count(11)
    page.locator("#rate .quiet").click()
    sql = page.locator("#rate pre").inner_text()
    assert sql.count("loom_scan") == scans
    bucket = re.search(r"ts_ns // \d+ \* \d+", sql)[0]
    with loom_duckdb.connect() as db:
        shown = {row[:3]: row[3:] for row in db.execute(f"SELECT bucket, value, rest, count, p99 FROM ({sql})").fetchall()}
        records = f"loom_scan('{directory}', 'packet')"
        largest = f"SELECT {kind} FROM {records} GROUP BY ALL ORDER BY count(*) DESC, 1 LIMIT 10"
        plain = db.execute(
            f"""SELECT {bucket}, CASE WHEN large THEN {kind}::VARCHAR END, NOT large, count(*), quantile_disc({value}, 0.99)
                FROM (SELECT *, {kind} IN ({largest}) AS large FROM {records}) GROUP BY ALL"""
        ).fetchall()
    assert shown.keys() == {row[:3] for row in plain}
    assert all(shown[row[:3]][0] == row[3] and abs(shown[row[:3]][1] - row[4]) <= row[4] / 64 for row in plain)


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
    expect(page.locator("#selection .what")).to_contain_text(f"port IN ({ports_chosen})")
    page.screenshot(path=SCREENSHOTS / "bands.png")
    assert [framed(page, 0.5, part) for part in (0.09, 0.5, 0.7)] == [True, False, False]
    page.reload()
    selected(page)
    assert counted(page) == count
    assert [framed(page, 0.5, part) for part in (0.09, 0.5, 0.7)] == [True, False, False]


def test_long_labels_of_bands_end_at_the_edge_of_the_picture(page: Page, ports: tuple[Explorer, Path]) -> None:
    page.add_init_script(
        "window.written = []; const { fillText } = CanvasRenderingContext2D.prototype;"
        "CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {"
        "  if (this.textAlign === 'right') written.push([text, x - this.measureText(text).width]); fillText.call(this, text, x, y); };"
    )

    def name_ports(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('"20"', '"clock_nanosleep"').replace('"19"', '"WWWWWWWWWW"'))

    page.route("**/query", name_ports)
    page.goto(f"{ports[0].url}#last=0&source=packet&index=port")
    expect(page.locator("#heat h2")).to_have_text("packet, records by port")
    written = dict(page.evaluate("written"))
    assert "18" in written
    for start in ("clock_", "WW"):
        (label,) = [text for text in written if text.startswith(start)]
        assert label.endswith("…")
        assert written[label] >= 0


def test_a_field_of_the_address_that_is_not_there_is_reported(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#group=nothing")
    expect(page.locator("#notice")).to_contain_text("The field 'nothing' of redis_request cannot be grouped by")
    expect(page.locator("#rate h2")).to_have_text("Records per second")
