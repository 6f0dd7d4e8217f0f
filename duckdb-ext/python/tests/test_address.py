"""Wrong parts of the explorer's address, in Chromium: each is reported with what is used instead, and all others hold."""

import re
from urllib.parse import urlencode

import pytest
from chromium import Start, browser, page
from conftest import Explorer
from playwright.sync_api import Page, expect

__all__ = ["browser", "page"]

RIGHT = {
    "source": "request",
    "index": "latency_us",
    "from": "2026-03-01T00:00:00Z",
    "to": "2026-03-01T00:00:15Z",
    "sel_from": "2026-03-01T00:00:05Z",
    "sel_to": "2026-03-01T00:00:10Z",
    "v_min": "100",
    "v_max": "200",
    "sort": "id",
    "filter": "id >= 7000",
    "zone": "utc",
}
TIME = "is not a time such as 2026-03-01T10:00:00Z"
# The page shows these for each part of the right address.
SHOWN = {
    "source": ("#rate h2, #heat h2", re.compile("request")),
    "window": ("#live", re.compile("Go live")),
    "time": ("#selection .what", re.compile(r"request .* 00:00:05.* . 00:00:10")),
    "values": ("#selection .what", re.compile("latency_us 100 µs . 200 µs")),
    "sort": ("#selection th[aria-sort=ascending]", re.compile("id")),
    "filter": ("#filter .chip button >> nth=0", re.compile("id >= 7000")),
    "zone": ("#zone", re.compile("UTC")),
}


@pytest.fixture(scope="module")
def requests(explore: Start, shop: str) -> Explorer:
    return explore(shop)


@pytest.mark.parametrize(
    ("wrong", "sentence", "lost"),
    [
        ({}, None, ()),
        ({"from": "yesterday"}, f"'from=yesterday' of the address {TIME}, so the window follows the newest record.", ("window",)),
        ({"to": None}, "'from=2026-03-01T00:00:00Z' of the address needs 'to', so the window follows the newest record.", ("window",)),
        (
            {"to": "2026-02-01T00:00:00Z"},
            "'from=2026-03-01T00:00:00Z' of the address is not before 'to=2026-02-01T00:00:00Z', so the window follows the newest record.",
            ("window",),
        ),
        ({"sel_to": "12:00"}, f"'sel_to=12:00' of the address {TIME}, so nothing is selected.", ("time", "values", "sort")),
        (
            {"sel_from": None, "sel_to": None},
            "'v_min=100' of the address needs 'sel_from' and 'sel_to', so nothing is selected.",
            ("time", "values", "sort"),
        ),
        ({"v_min": "300"}, "'v_min=300' of the address is greater than 'v_max=200', so the selection has any value.", ("values",)),
        ({"v_max": "many"}, "'v_max=many' of the address is not inf or a number, so the selection has no greatest value.", ("values",)),
        ({"sel_where": "id >"}, "The condition 'id >' of the selection does not fit request, so it is left out.", ()),
        ({"sort": "-size"}, "The records of request have no field 'size' to sort by, so they are in the usual order.", ("sort",)),
        ({"filter": "id >= "}, "The filter of the address does not fit request, so the page shows all records.", ("filter",)),
        ({"filter": "size > 1"}, "The filter of the address does not fit request, so the page shows all records.", ("filter",)),
        ({"group": "id"}, "The field 'id' of request cannot be grouped by, so the page shows no groups.", ()),
        (
            {"source": "orders"},
            "The source 'orders' is not in this directory, so the page shows 'request', and nothing is selected.",
            ("window", "time", "values", "sort"),
        ),
        (
            {"index": "size"},
            "The source 'request' has no open index 'size', so the page shows 'latency_us', and nothing is selected.",
            ("window", "time", "values", "sort"),
        ),
        (
            {"rows": "orders"},
            "The source 'orders', whose records the address lists, is not in this directory, so those of request are listed.",
            (),
        ),
        (
            {"with": "after"},
            "'with=after' of the address is not before, same, newest or a time such as 2026-03-01T10:00:00Z, so nothing is compared.",
            (),
        ),
        ({"zone": "mars"}, "'zone=mars' of the address is not utc, so times are in the zone of the browser.", ("zone", "time")),
        ({"at": "1"}, "'at=1' of the address needs 'at_addr' and 'at_source', so no record is open.", ()),
        ({"at": "1", "at_addr": "1", "at_source": "orders"}, "The source 'orders' has no record to open, so none is open.", ()),
        (
            {"width": "7"},
            "'width=7' of the address is not 10, 100, 1000, 10000 or 100000, so the neighbourhood has ± 1 ms.",
            (),
        ),
        (
            {"from": "2026-02-30T00:00:00Z"},
            f"'from=2026-02-30T00:00:00Z' of the address {TIME}, so the window follows the newest record.",
            ("window",),
        ),
        ({"form": "1"}, "'form=1' of the address is not a part that the page knows, so it is left out.", ()),
        ({"at_side": "end"}, "'at_side=end' of the address needs 'at', so no record is open.", ()),
        (
            {"at": "1", "at_addr": "x", "at_source": "request"},
            "'at_addr=x' of the address is not a whole number of at most 19 digits, so no record is open.",
            (),
        ),
        ({"last": "long"}, "'last=long' of the address is not a number from 0 to 1000000000, so the window has the last 60 seconds.", ()),
    ],
)
def test_a_wrong_part_is_reported_and_the_others_hold(
    page: Page, requests: Explorer, wrong: dict[str, str | None], sentence: str | None, lost: tuple[str, ...]
) -> None:
    address = {name: value for name, value in (RIGHT | wrong).items() if value is not None}
    page.goto(f"{requests.url}#{urlencode(address)}")
    if sentence is None:
        expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
        expect(page.locator("#notice")).to_be_hidden()
    else:
        expect(page.locator("#notice")).to_have_text(sentence)
    for part, (selector, text) in SHOWN.items():
        if part not in lost:
            expect(page.locator(selector).last).to_have_text(text)
    if "values" in lost:
        expect(page.locator("#selection .what")).not_to_have_text(SHOWN["values"][1])


def test_several_wrong_parts_have_a_line_each_until_the_next_choice(page: Page, requests: Explorer) -> None:
    page.goto(f"{requests.url}#{urlencode(RIGHT | {'v_min': '300', 'sort': 'size'})}")
    expect(page.locator("#notice")).to_be_visible()
    assert page.locator("#notice").inner_text().splitlines() == [
        "'v_min=300' of the address is greater than 'v_max=200', so the selection has any value.",
        "The records of request have no field 'size' to sort by, so they are in the usual order.",
    ]
    page.get_by_label("Remove id >= 7000").click()
    expect(page.locator("#notice")).to_be_hidden()
