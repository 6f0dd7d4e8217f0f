"""What the tests of clients share: a live directory, and what plain SQL says about it."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import loom_duckdb
import pytest
from daemon import ingestd, live

__all__ = ["ingestd", "live"]

DASHBOARDS = Path(__file__).resolve().parents[1]
ROOT = DASHBOARDS.parents[1]
SCREENSHOTS = ROOT / "target" / "screenshots"
CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture
def db(live: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection of the test's own, in UTC, with the views of the live directory in `live`."""
    with loom_duckdb.connect(live, name="live") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
