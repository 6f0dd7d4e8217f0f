"""The explorer's record list and the neighbourhood of a record, in Chromium."""

import subprocess
from pathlib import Path

import duckdb
from chromium import SCREENSHOTS, Start, browser, drag, drawn, page, selected, watching
from conftest import Explorer, until
from playwright.sync_api import Page, expect

import loom_duckdb

__all__ = ["browser", "page", "watching"]


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"#selection .records tbody tr td:nth-child({number})").all_inner_texts()


def choose(page: Page, watching: Explorer) -> dict[str, str]:
    page.goto(f"{watching.url}#last=0")
    drawn(page)
    drag(page, 0.4, 0.1, 0.6, 0.6)
    return selected(page)


def test_the_slowest_come_first_and_any_column_sorts_all_records(page: Page, watching: Explorer, live: Path) -> None:
    chosen = choose(page, watching)
    plain = (
        f"FROM loom_scan('{live}', 'redis_request') WHERE ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}' "
        f"AND latency_ns >= {chosen['v_min']} AND latency_ns <= {chosen.get('v_max', 'inf').replace('inf', '1e18')}"
    )

    def ids(order: str) -> list[str]:
        with loom_duckdb.connect() as db:
            return [row[0] for row in db.execute(f"SELECT id::VARCHAR {plain} ORDER BY {order} LIMIT 1000").fetchall()]

    assert column(page, 2) == ids("latency_ns DESC, addr")
    expect(page.locator("#selection th[aria-sort]")).to_contain_text("latency_ns")
    for heading, orders in {"op": ["op DESC, addr", "op, addr"], "time": ["ts_ns, addr", "ts_ns DESC, addr"]}.items():
        for order in orders:
            page.locator("#selection th button", has_text=heading).first.click()
            expect(page.locator("#selection th[aria-sort]")).to_contain_text(heading)
            listed = page.locator("#selection[data-state=shown] [aria-busy=false]")
            until(lambda order=order, listed=listed: listed.count() == 1 and column(page, 2) == ids(order))
    assert "sort=-ts_ns" in page.url
    page.reload()
    selected(page)
    assert column(page, 2) == ids("ts_ns DESC, addr")


def test_the_first_rows_come_at_once_and_the_others_move_nothing(page: Page, watching: Explorer) -> None:
    page.add_init_script(
        "window.idle = new Map(); let next = 1; window.requestIdleCallback = (work) => (idle.set(next, work), next++);"
        "window.cancelIdleCallback = (id) => idle.delete(id);"
    )
    page.goto(f"{watching.url}#last=0")
    drawn(page)
    drag(page, 0.1, 0.1, 0.9, 0.9)
    page.wait_for_selector("#selection[data-state=shown]")
    rows = page.locator("#selection .records tbody tr")
    first = rows.count()
    assert first < 100
    widths = "[...document.querySelectorAll('#selection .records th')].map((cell) => cell.getBoundingClientRect().width)"
    before = page.evaluate(widths)
    rows.nth(first - 1).focus()
    page.keyboard.press("ArrowDown")
    expect(rows.nth(first)).to_be_focused()
    assert rows.count() < 1000
    # The others wait until the differences are drawn.
    until(lambda: page.evaluate("idle.size > 0"))
    page.evaluate("() => { while (idle.size) { const [[id, work]] = idle; idle.delete(id); work(); } }")
    expect(page.locator("#selection .records .table")).to_have_attribute("aria-busy", "false")
    assert rows.count() == 1000
    assert page.evaluate(widths) == before


def test_the_list_is_in_view_in_a_small_window(page: Page, watching: Explorer) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    choose(page, watching)
    fourth = page.locator("#selection .records tbody tr").nth(3).bounding_box()
    assert fourth["y"] + fourth["height"] <= 800
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "records.png")


def test_a_row_opens_everything_around_it(page: Page, watching: Explorer, live: Path) -> None:
    choose(page, watching)
    number = column(page, 2)[0]
    page.locator("#selection .records tbody tr").first.click()
    near = page.locator("#near")
    expect(near).to_have_attribute("data-state", "shown")
    expect(near.locator(".record")).to_contain_text(f"id {number} ")
    expect(near.locator("tr.own")).to_contain_text(f"id {number} ")
    with loom_duckdb.connect() as db:
        at = f"(SELECT any_value(ts) FROM loom_scan('{live}', 'redis_request', filter := 'id = {number}'))"
        ((when,),) = db.execute(f"SELECT epoch_us({at})").fetchall()

        def around(us: int) -> int:
            ends = f"t_from := make_timestamptz({when - us}), t_to := make_timestamptz({when + us + 1})"
            sources = ("redis_request", "syscall", "packet", "loom_losses", "loom_alerts", "loom_metrics", "loom_rules")
            counts = [f"(SELECT count(*) FROM loom_scan('{live}', '{source}', {ends}))" for source in sources]
            return db.execute(f"SELECT {' + '.join(counts)}").fetchall()[0][0]

        for text, us in (("± 1 ms", 1000), ("± 10 ms", 10_000), ("± 10 µs", 10)):
            near.locator("button", has_text=text).first.click()
            expect(near.locator("> .said")).to_contain_text(f"{around(us):,} record")
    assert "width=10&" in page.url or page.url.endswith("width=10")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "near.png")
    page.reload()
    expect(near).to_have_attribute("data-state", "shown")
    expect(near.locator(".record")).to_contain_text(f"id {number} ")
    page.keyboard.press("Escape")
    expect(near).to_be_hidden()
    assert "at=" not in page.url
    expect(page.locator("#selection")).to_be_visible()


def test_the_time_line_begins_where_the_record_began_and_shows_what_shares_a_value(page: Page, watching: Explorer, live: Path) -> None:
    choose(page, watching)
    number = column(page, 2)[0]
    page.locator("#selection .records tbody tr").first.click()
    near = page.locator("#near")
    expect(near).to_have_attribute("data-state", "shown")
    expect(near.get_by_role("button", name="Its end")).to_have_attribute("aria-pressed", "true")
    near.get_by_role("button", name="± 10 µs").click()
    near.get_by_role("button", name="Its start").click()
    expect(near.get_by_role("button", name="Its start")).to_have_attribute("aria-pressed", "true")
    with loom_duckdb.connect() as db:
        own = f"FROM loom_scan('{live}', 'redis_request', filter := 'id = {number}')"
        ((began, latency, port),) = db.execute(f"SELECT (ts_ns - latency_ns) // 1000, latency_ns, client_port {own}").fetchall()
        sources = ("redis_request", "syscall", "packet", "loom_losses", "loom_alerts", "loom_metrics", "loom_rules")
        ends = f"t_from := make_timestamptz({began - 10}), t_to := make_timestamptz({began + 11})"
        scans = {source: f"loom_scan('{live}', '{source}', {ends}" for source in sources}
        ((around,),) = db.execute(f"SELECT {' + '.join(f'(SELECT count(*) FROM {scan}))' for scan in scans.values())}").fetchall()
        fields = {source: [row[0] for row in db.execute(f"DESCRIBE FROM {scan})").fetchall()] for source, scan in scans.items()}
        of_record = {"source", "dir", "ts", "ts_ns", "addr"}
        shares = {
            source: " OR ".join(f"\"{name}\"::VARCHAR = '{port}'" for name in names if name not in of_record)
            for source, names in fields.items()
        }
        counts = [f"(SELECT count(*) FROM {scans[source]}) WHERE {condition})" for source, condition in shares.items()]
        ((sharing,),) = db.execute(f"SELECT {' + '.join(counts)}").fetchall()
    said = near.locator("> .said")
    expect(said).to_contain_text(f"{around:,} record")
    # The record is there with the time of its end.
    assert latency > 20_000
    expect(near.locator("tr.own td").first).to_contain_text("+")
    near.locator(".record button", has_text="client_port").click()
    expect(said).to_contain_text(f"{sharing} of these have {port} in a field.")
    expect(near.locator("tbody tr")).to_have_count(sharing + 1)
    near.locator(".record button", has_text="client_port").click()
    expect(said).not_to_contain_text("in a field")
    page.reload()
    expect(near.get_by_role("button", name="Its start")).to_have_attribute("aria-pressed", "true")
    expect(said).to_contain_text(f"{around:,} record")


def test_the_neighbourhood_counts_one_source_in_the_singular(page: Page, explore: Start, shop: Path) -> None:
    times = "sel_from=2026-03-01T00:00:10Z&sel_to=2026-03-01T00:00:15Z"
    page.goto(f"{explore(shop).url}#last=0&source=request&{times}")
    selected(page)
    page.locator("#selection .records tbody tr").first.click()
    expect(page.locator("#near > .said")).to_contain_text("records of 1 source.")


def test_an_unknown_column_of_the_address_is_no_order(page: Page, explore: Start, shop: Path) -> None:
    times = "sel_from=2026-03-01T00:00:10Z&sel_to=2026-03-01T00:00:15Z"
    page.goto(f"{explore(shop).url}#last=0&source=request&{times}&sort=nosuch")
    selected(page)
    assert column(page, 3)[:2] == ["999 µs", "999 µs"]
    expect(page.locator("#selection th[aria-sort]")).to_contain_text("latency_us ↓")


def test_rows_are_opened_by_the_keyboard(page: Page, watching: Explorer) -> None:
    choose(page, watching)
    numbers = column(page, 2)
    page.locator("#selection .records tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#near .record")).to_contain_text(f"id {numbers[1]} ")


def test_a_record_of_a_trace_opens_its_waterfall(page: Page, explore: Start, ingestd: str, tmp_path: Path) -> None:
    begin = "TIMESTAMP '2026-03-01'"
    span = "'t' || (i // 4) AS trace_id, 's' || i AS span_id, CASE WHEN i % 4 > 0 THEN 's' || (i // 4 * 4) END AS parent_span_id"
    sources = {
        "spans": f"""SELECT {begin} + to_microseconds(i * 250) AS ts, ((4 - i % 4) * 200_000)::UBIGINT AS duration_ns,
            'step ' || i % 4 AS name, 'shop' AS service, 'OK' AS status, {span},
            '{{"thread.id": ' || (7 + i % 2) || '}}' AS attributes FROM range(400) AS numbers(i)""",
        "syscall": f"""SELECT {begin} + to_microseconds(i * 50) AS ts, 20_000::UINTEGER AS latency_ns, (5 + i % 5)::UINTEGER AS tid
            FROM range(2000) AS numbers(i)""",
        "packet": f"SELECT {begin} + to_microseconds(i * 100) AS ts, (i % 3)::UINTEGER AS wire_bytes FROM range(1000) AS numbers(i)",
    }
    directory = tmp_path / "traced.loom"
    for name, rows in sources.items():
        file = tmp_path / f"{name}.parquet"
        duckdb.connect().execute(f"COPY ({rows}) TO '{file}'")
        value = {"spans": "duration_ns", "syscall": "latency_ns", "packet": "wire_bytes"}[name]
        load = [ingestd, "load", str(directory), "--source", name, "--ts", "ts", "--index", value, str(file)]
        subprocess.run(load, check=True, capture_output=True)
    # The trace t10 lasts from 10 ms to 10.95 ms: a call each 50 µs, two of five of them on the threads 7 and 8.
    times = "sel_from=2026-03-01T00:00:00.010Z&sel_to=2026-03-01T00:00:00.011Z"
    page.goto(f"{explore(directory).url}#last=0&source=spans&{times}")
    selected(page)
    page.locator("#selection .records tbody tr").first.click()
    trace = page.locator("#near .trace")
    expect(trace).to_have_attribute("data-state", "shown")
    expect(trace.locator("h3")).to_have_text("Trace t10")
    expect(trace.locator(".span .name")).to_have_text([f"shop step {number}" for number in range(4)])
    expect(trace.locator(".span.own .name")).to_have_text("shop step 0")
    with loom_duckdb.connect() as db:
        window = "ts >= '2026-03-01 00:00:00.01+00' AND ts <= '2026-03-01 00:00:00.01095+00'"
        calls, packets = (
            db.execute(f"SELECT count(*) FROM loom_scan('{directory}', '{name}') WHERE {window}{threads}").fetchall()[0][0]
            for name, threads in (("syscall", " AND tid IN (7, 8)"), ("packet", ""))
        )
    expect(trace.locator("> .said")).to_contain_text(f"{calls} records of syscall, {packets} records of packet")
    expect(trace.locator("> .said")).to_contain_text("threads 7, 8")
    page.screenshot(path=SCREENSHOTS / "trace.png")
