"""The explorer's filter box: the grammar of filters, completion, chips, the address, and every picture."""

from pathlib import Path

import pytest
from chromium import browser, counted, drag, drawn, page, refreshed, selected, watching
from conftest import Explorer
from playwright.sync_api import Page, expect

import loom_duckdb

__all__ = ["browser", "page", "watching"]


def apply(page: Page, text: str) -> None:
    """Type a condition and apply it."""
    page.locator("#filter-line").fill(text)
    page.keyboard.press("Enter")


def chips(page: Page) -> list[str]:
    return page.locator("#filter .chip button:first-child").all_inner_texts()


def test_a_filter_holds_for_every_picture_and_for_the_records(page: Page, watching: Explorer, live: Path) -> None:
    page.goto(watching.url)
    drawn(page)
    apply(page, "op = 'SET'")
    expect(page.locator("#filter .chip")).to_have_count(1)
    apply(page, "latency_ns BETWEEN 50000 AND 100000 AND hit")
    expect(page.locator("#filter .chip")).to_have_count(3)
    assert chips(page) == ["op = 'SET'", "latency_ns BETWEEN 50000 AND 100000", "hit"]
    refreshed(page)
    drag(page, 0, 0, 1, 1)
    chosen = selected(page)
    assert chosen["filter"] == "op = 'SET' AND latency_ns BETWEEN 50000 AND 100000 AND hit"
    window = f"ts >= '{chosen['sel_from']}' AND ts < '{chosen['sel_to']}'"
    with loom_duckdb.connect() as db:
        plain = f"SELECT count(*) FROM loom_scan('{live}', 'redis_request') WHERE {window} AND {chosen['filter']}"
        assert counted(page) == db.execute(plain).fetchall()[0][0] > 0
        for picture, column in (("rate", "sum(count) FILTER (source = 'redis_request')"), ("heat", "sum(count)")):
            page.locator(f"#{picture} .quiet").click()
            shown = page.locator(f"#{picture} pre").inner_text()
            ((filtered,),) = db.execute(f"SELECT {column} FROM ({shown})").fetchall()
            ((everything,),) = db.execute(f"SELECT {column} FROM ({without(shown)})").fetchall()
            assert 0 < filtered < everything
        page.locator("#quantiles .quiet").click()
        ((most,),) = db.execute(f"SELECT max(max) FROM ({page.locator('#quantiles pre').inner_text()})").fetchall()
        assert most <= 100_000
    assert set(page.locator("#selection .records tbody tr td:nth-child(6)").all_inner_texts()) == {"SET"}


def without(sql: str) -> str:
    """Remove the filter of a query."""
    begin = sql.index(",\n    filter := '")
    return sql[:begin] + sql[sql.index("hit'", begin) + 4 :]


def test_fields_and_labels_are_completed(page: Page, watching: Explorer) -> None:
    page.goto(watching.url)
    drawn(page)
    page.keyboard.press("/")
    expect(page.locator("#filter-line")).to_be_focused()
    page.keyboard.type("lat")
    expect(page.locator("#filter-list li")).to_have_text(["latency_ns"])
    page.keyboard.press("Tab")
    assert page.locator("#filter-line").input_value() == "latency_ns "
    page.locator("#filter-line").fill("")
    page.keyboard.type("op = ")
    expect(page.locator("#filter-list li").first).to_have_text("'GET'")
    page.keyboard.type("'LP")
    expect(page.locator("#filter-list li")).to_have_text(["'LPUSH'"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator("#filter .chip")).to_have_count(1)
    assert chips(page) == ["op = 'LPUSH'"]


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("op = 'NOPE'", "NOPE"),
        ("op = ", "column 5: expected a number"),
        ("nothing = 1", "nothing"),
        ("op = 'GET' AND (hit", "expected ')'"),
    ],
)
def test_a_wrong_filter_is_explained_beside_the_box_and_not_applied(page: Page, watching: Explorer, typed: str, reason: str) -> None:
    page.goto(watching.url)
    drawn(page)
    apply(page, typed)
    expect(page.locator("#filter .problem")).to_contain_text(reason)
    assert chips(page) == []
    assert page.locator("#filter-line").input_value() == typed.strip() or page.locator("#filter-line").input_value() == typed
    assert "filter=" not in page.url
    page.locator("#filter-line").fill("")
    expect(page.locator("#filter .problem")).to_be_hidden()


def test_chips_are_changed_and_removed_and_back_undoes_it(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#filter=op = 'GET' AND hit")
    expect(page.locator("#filter .chip")).to_have_count(2)
    page.get_by_label("Remove hit").click()
    expect(page.locator("#filter .chip")).to_have_count(1)
    page.go_back()
    expect(page.locator("#filter .chip")).to_have_count(2)
    page.locator("#filter .chip button", has_text="op = 'GET'").first.click()
    expect(page.locator("#filter-line")).to_have_value("op = 'GET'")
    apply(page, "op = 'SET' OR op = 'GET'")
    expect(page.locator("#filter .chip")).to_have_count(2)
    assert chips(page) == ["hit", "(op = 'SET' OR op = 'GET')"]


def test_a_filter_of_the_address_that_does_not_fit_is_reported(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#source=packet&filter=op = 'GET'")
    expect(page.locator("#notice")).to_contain_text("The filter of the address does not fit packet")
    expect(page.locator("#filter .problem")).to_contain_text("op")
    expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
    assert chips(page) == []


def test_a_source_has_its_own_filter(page: Page, watching: Explorer) -> None:
    page.goto(f"{watching.url}#filter=hit")
    expect(page.locator("#filter .chip")).to_have_count(1)
    page.locator("#source").select_option("packet")
    expect(page.locator("#filter .chip")).to_have_count(0)
    page.go_back()
    expect(page.locator("#filter .chip")).to_have_count(1)
