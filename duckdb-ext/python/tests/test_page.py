"""The explorer's page in Chromium: live pictures, a brush, addresses that restore it, and each state of a directory."""

import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from chromium import PATIENCE_MS, SCREENSHOTS, Start, browser, counted, drag, drawn, page, refreshed, refreshes, selected, watching
from conftest import Explorer, records, until
from playwright.sync_api import Browser, Page, expect

import loom_duckdb

__all__ = ["browser", "page", "watching"]


def test_the_pictures_change_while_data_come_in(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    expect(page.locator("#daemon")).to_have_text("recording")
    for picture in ("rate", "quantiles", "heat"):
        expect(page.locator(f"#{picture}")).to_have_attribute("data-state", "shown")
    pictures = [page.locator(f"#{picture} canvas").first for picture in ("rate", "quantiles", "heat")]
    before = [picture.screenshot() for picture in pictures]
    refreshed(page)
    refreshed(page)
    assert all(picture.screenshot() != old for picture, old in zip(pictures, before, strict=True))


def test_a_brush_gives_exactly_the_rows_that_sql_gives(page: Page, watching: Explorer, live: Path) -> None:
    page.goto(f"{watching.url}#last=0")
    drawn(page)
    drag(page, 0.3, 0.1, 0.75, 0.6)
    chosen = selected(page)
    plain = (
        f"FROM loom_scan('{live}', 'redis_request') WHERE ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}' "
        f"AND latency_ns >= {chosen['v_min']} AND latency_ns <= {chosen['v_max']}"
    )
    with loom_duckdb.connect() as db:
        db.execute("SET TimeZone = 'Europe/Zurich'")
        (count,) = db.execute(f"SELECT count(*) {plain}").fetchall()[0]
        listed = db.execute(
            f"SELECT strftime(ts, '%H:%M:%S.%f') || lpad((ts_ns % 1000)::VARCHAR, 3, '0'), id::VARCHAR {plain} "
            "ORDER BY latency_ns DESC, addr LIMIT 1000"
        ).fetchall()
    assert count > 0
    assert counted(page) == count
    rows = page.locator("#selection .records tbody tr")
    assert rows.count() == min(count, 1000)
    shown = [tuple(row.split("\t")[:2]) for row in page.locator("#selection .records tbody").inner_text().splitlines()]
    assert shown == listed


def test_the_address_restores_a_selection(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    drag(page, 0.4, 0.2, 0.6, 0.8)
    selected(page)

    def seen() -> tuple[str, int, list[str]]:
        texts = page.locator("#selection .what, #selection .records td, #rate pre, #quantiles pre, #heat pre").all_text_contents()
        return page.url, counted(page), texts

    before = seen()
    page.goto("about:blank")
    page.goto(before[0])
    selected(page)
    assert seen() == before


def test_nothing_moves_under_a_brush_and_clearing_it_goes_on(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    drag(page, 0.4, 0.2, 0.6, 0.8, release=False)
    picture, before = page.locator("#heat canvas").first.screenshot(), refreshes(page)
    # The page refreshes twice in this time.
    page.wait_for_timeout(5_000)
    assert refreshes(page) <= before + 1, "the one that was under way may end"
    assert page.locator("#heat canvas").first.screenshot() == picture
    page.mouse.up()
    selected(page)
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    refreshed(page)
    refreshed(page)
    assert page.locator("#heat canvas").first.screenshot() != picture


def test_the_sql_of_a_picture_runs_as_it_is_shown(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    with loom_duckdb.connect() as db:
        for picture in ("rate", "quantiles", "heat"):
            page.locator(f"#{picture} .quiet").click()
            assert db.sql(page.locator(f"#{picture} pre").inner_text()).to_arrow_table().num_rows


def test_an_interaction_asks_for_nothing_that_is_shown(page: Page, odd: Explorer) -> None:
    page.goto(f"{odd.url}#from=2026-03-01T00:00:00Z&to=2026-03-01T00:10:00Z")
    drawn(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.post_data_json["sql"]) if request.url.endswith("/query") else None)
    page.locator("#group").select_option("kind")
    expect(page.locator("#rate h2")).to_have_text("cron per second, by kind")
    # The page looks at the directory every two seconds.
    own = [sql for sql in asked if not re.search("loom_(sources|indexes|status)", sql)]
    assert len(own) == 1, own
    assert "loom_bins" in own[0]


def test_a_pan_goes_as_far_as_there_may_be_records(page: Page, odd: Explorer) -> None:
    # The records last 9.5 minutes, and the window may begin as long before them.
    page.goto(f"{odd.url}#from=2026-02-28T23:52:00Z&to=2026-03-01T00:02:00Z")
    drawn(page)
    page.keyboard.press("ArrowLeft")
    expect(page).to_have_url(re.compile("from=2026-02-28T23:50:29.999999Z"))
    before = refreshes(page)
    page.keyboard.press("ArrowLeft")
    until(lambda: refreshes(page) > before)
    assert "from=2026-02-28T23:50:29.999999Z" in page.url


def test_another_source_in_the_time_of_a_selection_is_listed(page: Page, watching: Explorer, live: Path) -> None:
    page.goto(watching.url)
    drawn(page)
    drag(page, 0.5, 0.2, 0.6, 0.8)
    selected(page)
    page.locator("#selection .around button", has_text="packet").click()
    expect(page.locator("#selection .what")).to_contain_text("packet")
    chosen = selected(page)
    assert chosen["rows"] == "packet"
    with loom_duckdb.connect() as db:
        count = db.execute(
            f"SELECT count(*) FROM loom_scan('{live}', 'packet') WHERE ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}'"
        ).fetchall()[0][0]
    assert counted(page) == count


def test_zooming_makes_the_selection_the_window(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    drag(page, 0.5, 0.2, 0.6, 0.8)
    selected(page)
    page.get_by_text("Zoom to selection").click()
    refreshed(page)
    chosen = selected(page)
    assert (chosen["from"], chosen["to"]) == (chosen["sel_from"], chosen["sel_to"])
    page.keyboard.press("Escape")
    expect(page.locator("#selection")).to_be_hidden()
    assert f"from={chosen['from']}" in page.url, "the window stays"
    page.locator("#live").click()
    assert "from=" not in page.url


def test_the_page_works_with_the_token_of_its_address(page: Page, explore: Start, shop: Path) -> None:
    page.goto(explore(shop, "--address", "0.0.0.0").url)  # noqa: S104
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")


def load(ingestd: str, directory: Path, source: str, rows: str) -> Path:
    """Write a directory with the rows of a SELECT, whose times are `ts`, and an index on `v`."""
    duckdb.connect().execute(f"COPY ({rows}) TO '{directory}.parquet'")
    command = [ingestd, "load", str(directory), "--source", source, "--ts", "ts", "--index", "v", f"{directory}.parquet"]
    subprocess.run(command, check=True, capture_output=True)
    return directory


@pytest.fixture(scope="module")
def odd(ingestd: str, explore: Start, tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    """Show a directory of few records, one each 30 s for ten minutes, half of them 0; and one with an infinite value."""
    place = tmp_path_factory.mktemp("odd")
    times = "TIMESTAMP '2026-03-01' + to_seconds(30 * i) AS ts"
    kinds = "(i % 2 * i)::UINTEGER AS v, (i % 3)::UTINYINT AS kind"
    few = load(ingestd, place / "few.loom", "cron", f"SELECT {times}, {kinds} FROM range(20) AS numbers(i)")
    values = "CASE WHEN i = 10 THEN 'inf'::DOUBLE ELSE 10 + i END AS v"
    endless = load(ingestd, place / "endless.loom", "gauge", f"SELECT {times}, {values} FROM range(20) AS numbers(i)")
    return explore(few, endless)


def test_a_rate_counts_the_time_without_records(page: Page, odd: Explorer) -> None:
    page.goto(f"{odd.url}#last=0")
    drawn(page)
    # 20 records, in 19 times 30 s and the bucket of the last.
    expect(page.locator("#rate .legend")).to_contain_text(re.compile(r"cron 0\.03[3-5]\d*/s"))


def test_a_brush_over_all_of_the_map_has_every_record(page: Page, odd: Explorer) -> None:
    page.goto(f"{odd.url}#last=0")
    drawn(page)
    drag(page, 0, 0, 1, 1)
    chosen = selected(page)
    assert (chosen["v_min"], chosen["v_max"]) == ("-inf", "inf")
    assert counted(page) >= 19, "the last record is in the bucket that the right edge cuts"
    assert "v with any value" in page.locator("#selection .what").inner_text()


def test_a_brush_over_an_index_with_a_filter_has_its_records_alone(page: Page, explore: Start, ingestd: str, tmp_path: Path) -> None:
    times = "TIMESTAMP '2026-03-01' + to_seconds(i) AS ts"
    rows = f"SELECT {times}, (i % 100)::UINTEGER AS v, (i % 3)::UTINYINT AS kind FROM range(3000) AS numbers(i)"
    directory = load(ingestd, tmp_path / "some.loom", "request", rows)
    add = [ingestd, "index", "add", str(directory), "--source", "request", "--index", "some", "--value", "v", "--where", "kind = 1"]
    subprocess.run(add, check=True, capture_output=True)
    page.goto(f"{explore(directory).url}#source=request&index=some&last=0")
    drawn(page)
    drag(page, 0, 0, 1, 1)
    chosen = selected(page)
    assert chosen["index"] == "some"
    window = f"ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}'"
    with loom_duckdb.connect() as db:
        ((count,),) = db.execute(f"SELECT count(*) FROM loom_scan('{directory}', 'request') WHERE {window} AND kind = 1").fetchall()
        # The pictures show only the index's records too.
        page.locator("#heat .quiet").click()
        ((pictured,),) = db.execute(f"SELECT sum(count) FROM ({page.locator('#heat pre').inner_text()})").fetchall()
    assert counted(page) == count
    assert pictured == 1000
    kinds = page.locator("#selection .records tbody tr td:last-child").all_inner_texts()
    assert kinds == ["1"] * min(count, 1000)


def test_an_infinite_value_leaves_the_pictures_of_the_others(page: Page, odd: Explorer) -> None:
    directory = page.request.get(f"{odd.url}about").json()["directories"][1]
    page.goto(f"{odd.url}#dir={directory}&last=0")
    for picture in ("rate", "quantiles", "heat"):
        expect(page.locator(f"#{picture}")).to_have_attribute("data-state", "shown")
    drag(page, 0.1, 0.3, 0.9, 0.9)
    chosen = selected(page)
    assert 10 <= float(chosen["v_max"]) <= 30, chosen
    assert counted(page) > 0


@pytest.mark.parametrize(
    ("link", "notice"),
    [
        ("dir=/no/such.loom&source=cron&index=v", "was not given the directory /no/such.loom"),
        ("source=nope&index=v", "The source 'nope' is not in this directory"),
        ("source=cron&index=gone", "has no open index 'gone'"),
    ],
)
def test_a_link_to_what_is_not_there_says_so_and_selects_nothing(page: Page, odd: Explorer, link: str, notice: str) -> None:
    selection = "sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:10:00Z&v_min=1&v_max=3"
    page.goto(f"{odd.url}#{link}&{selection}")
    expect(page.locator("#notice")).to_contain_text(notice)
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
    expect(page.locator("#selection")).to_be_hidden()


def test_an_explorer_that_ends_leaves_its_last_pictures(page: Page, explore: Start, shop: Path) -> None:
    shown = explore(shop)
    page.goto(shown.url)
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
    shown.process.kill()
    expect(page.locator("#notice")).to_contain_text("The explorer does not respond")
    expect(page.locator("#heat")).to_be_visible()


def test_back_leads_from_a_zoom_to_the_window_before(page: Page, odd: Explorer) -> None:
    page.goto(f"{odd.url}#last=0")
    drawn(page)
    drag(page, 0.2, 0.2, 0.6, 0.8)
    selected(page)
    before = page.url
    page.get_by_text("Zoom to selection").click()
    refreshed(page)
    assert page.url != before
    page.go_back()
    expect(page.locator("#selection")).to_be_visible()
    assert page.url == before


def test_losses_are_drawn(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#last=0")
    drawn(page)
    expect(page.locator("#rate .legend")).to_contain_text("2 lost")


def test_alerts_and_pins_are_drawn_and_listed(page: Page, watching: Explorer, live: Path) -> None:
    pinned = f"SELECT count(*) FROM loom_scan('{live}', 'loom_alerts') WHERE state = 'pinned'"
    with loom_duckdb.connect() as db:
        until(lambda: db.execute(pinned).fetchall()[0][0] > 0)
    page.goto(watching.url)
    legend = page.locator("#rate .legend")
    expect(legend).to_contain_text(re.compile(r"\d+ alert"))
    expect(legend).to_contain_text(re.compile(r"\d+ pin"))
    table = page.locator("#alerts table")
    expect(table).to_contain_text("firing")
    expect(table).to_contain_text("300 k")
    expect(table).to_contain_text("records; ")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "alerts.png", full_page=True)


def test_times_are_in_the_zone_of_the_browser_or_in_utc(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:00:01Z&source=packet")
    expect(page.locator("#selection .what")).to_contain_text("01:00:00.00")
    page.locator("#zone").click()
    expect(page.locator("#selection .what")).to_contain_text("00:00:00.00")
    assert "zone=utc" in page.url


def test_a_source_without_an_index_shows_its_rate_and_its_rows(
    page: Page, explore: Start, ingestd: str, shop: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "plain.loom"
    subprocess.run(
        [ingestd, "load", str(directory), "--source", "plain", "--ts", "ts", str(shop.parent / "request.parquet")],
        check=True,
        capture_output=True,
    )
    page.goto(explore(directory).url)
    expect(page.locator("#rate")).to_have_attribute("data-state", "shown")
    expect(page.locator("#heat")).to_be_hidden()
    expect(page.locator("#hint")).to_contain_text("No index on plain")
    box = page.locator("#rate canvas.over").bounding_box()
    page.mouse.move(box["x"] + 1000, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 1100, box["y"] + 60, steps=3)
    page.mouse.up()
    chosen = selected(page)
    with loom_duckdb.connect() as db:
        plain = f"SELECT count(*) FROM loom_scan('{directory}', 'plain') WHERE ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}'"
        assert counted(page) == db.execute(plain).fetchall()[0][0] > 0


def test_an_empty_directory_says_what_to_do_until_records_come(
    page: Page, explore: Start, ingestd: str, tmp_path: Path, shop: Path
) -> None:
    directory = tmp_path / "new.loom"
    with subprocess.Popen([ingestd, "run", str(directory)], stderr=subprocess.DEVNULL) as run:
        try:
            until(lambda: (directory / "ingest.sock").exists())
            page.goto(explore(directory).url)
            expect(page.locator("#empty")).to_contain_text("No records yet")
            expect(page.locator("#empty")).to_contain_text(f"ingestd load {directory}")
            subprocess.run(
                [
                    ingestd,
                    "load",
                    str(directory),
                    "--source",
                    "request",
                    "--ts",
                    "ts",
                    "--index",
                    "latency_us",
                    str(shop.parent / "request.parquet"),
                ],
                check=True,
                capture_output=True,
            )
            expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
            expect(page.locator("#empty")).to_be_hidden()
        finally:
            run.terminate()


def test_a_daemon_that_ends_is_reported_with_the_time(page: Page, explore: Start, ingestd: str, tmp_path: Path) -> None:
    directory = tmp_path / "ends.loom"
    with subprocess.Popen(
        [ingestd, "demo", str(directory), "--seconds", "600", "--rate", "5000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as demo:
        try:
            with loom_duckdb.connect() as db:
                until(lambda: records(db, directory, "packet") > 0)
            page.goto(explore(directory).url)
            expect(page.locator("#daemon")).to_have_text("recording")
        finally:
            demo.kill()
    expect(page.locator("#daemon")).to_contain_text(re.compile(r"no daemon is running; last record \d\d:\d\d:\d\d, .* ago"))
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")


def test_a_million_records_are_counted_and_the_first_listed(page: Page, explore: Start, ingestd: str, tmp_path: Path) -> None:
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 10) AS ts, (i % 100)::UTINYINT AS n
            FROM range(1_200_000) AS numbers(i)) TO '{tmp_path}/many.parquet'"""
    )
    directory = tmp_path / "many.loom"
    command = [ingestd, "load", str(directory), "--source", "many", "--ts", "ts", "--index", "n", str(tmp_path / "many.parquet")]
    subprocess.run(command, check=True, capture_output=True)
    shown = explore(directory, "--timeout", "60")
    page.goto(f"{shown.url}#last=0&source=many&index=n&sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:00:11Z&v_min=0&v_max=98")
    selected(page)
    assert counted(page) == 1_089_000
    assert page.locator("#selection .records tbody tr").count() == 1000
    expect(page.locator("#selection .foot")).to_contain_text("The first 1,000 by n are listed")


def test_a_selection_that_retention_has_removed_is_named(page: Page, explore: Start, ingestd: str, tmp_path: Path) -> None:
    directory = tmp_path / "short.loom"
    config = tmp_path / "short.toml"
    config.write_text('[log]\nsegment = "1MiB"\nblock = "1MiB"\n[retention]\nmax_bytes = "24MiB"\n')
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 100) AS ts, i AS n,
                array_to_string([sha256(concat(i, ' ', part)) FOR part IN range(6)], '') AS filler
            FROM range(200_000) AS numbers(i)) TO '{tmp_path}/short.parquet'"""
    )
    with subprocess.Popen([ingestd, "run", str(directory), "--config", str(config)], stderr=subprocess.PIPE, text=True) as run:
        try:
            until(lambda: (directory / "ingest.sock").exists() or run.poll() is not None)
            assert run.poll() is None, run.stderr.read()
            load = [ingestd, "load", str(directory), "--source", "filled", "--ts", "ts", "--index", "n", str(tmp_path / "short.parquet")]
            subprocess.run(load, check=True, capture_output=True)
            with loom_duckdb.connect() as db:
                begin = f"SELECT value::UBIGINT > 0 FROM loom_status('{directory}') WHERE key = 'begin'"
                until(lambda: db.execute(begin).fetchall() == [(True,)])
            page.goto(f"{explore(directory).url}#last=0&source=filled&index=n&sel_from=2026-03-01T00:00:00Z&sel_to=2026-03-01T00:00:00.5Z")
            expect(page.locator("#selection .title strong")).to_have_text("Removed")
            expect(page.locator("#selection .foot")).to_contain_text("Retention has removed these records. The oldest")
        finally:
            run.kill()


@pytest.mark.parametrize("width", [420, 1280, 1920])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_its_picture_is_kept(browser: Browser, watching: Explorer, live: Path, width: int, scheme: str) -> None:
    with loom_duckdb.connect() as db:
        top = f"loom_top('{live}', 'redis_request', 'latency', 1, last := INTERVAL 2 MINUTE)"
        us, value = db.execute(f"SELECT epoch_us(ts), latency_ns FROM {top}").fetchall()[0]
        (newest,) = db.execute(f"SELECT epoch_us(max(last_ts)) FROM loom_sources('{live}')").fetchall()[0]
    to = min(us + 20_000_000, newest)
    chosen = {"from": to - 60_000_000, "to": to, "sel_from": us - 2_000_000, "sel_to": us + 2_000_000}
    times = "&".join(f"{name}={datetime.fromtimestamp(at / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}Z" for name, at in chosen.items())
    size = {"width": width, "height": 1080}
    with browser.new_context(viewport=size, color_scheme=scheme, timezone_id="Europe/Zurich") as context:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{watching.url}#source=redis_request&index=latency&{times}&v_min={int(value * 0.06)}&v_max={int(value * 1.2)}")
        selected(page)
        assert counted(page) >= 1
        expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
        assert page.locator("html").get_attribute("data-theme") == scheme
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        # A figure hides parts that are too wide, so its caption is checked separately; a table scrolls.
        assert page.evaluate(
            "[...document.querySelectorAll('figcaption *')].every(each => each.getBoundingClientRect().right <= innerWidth)"
        )
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"explorer-{width}-{scheme}.png")
