"""The explorer finds the cause of a case in five clicks or fewer, and an agent with as many calls.

    .clients-venv/bin/python tests/cases/clicks.py redis DIR 0      # DIR is the directory of run.py --keep

`run.py` of a case calls it in the environment that has the wheel. The number is that of the row to open in the list of slow records. Each
click's screenshot goes to `target/screenshots`. Prints what was found, as JSON.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from playwright.sync_api import Page, expect, sync_playwright

SCREENSHOTS = Path(__file__).resolve().parents[2] / "target/screenshots"
CHROMIUM = "/usr/bin/chromium"
PATIENCE_MS = 180_000
expect.set_options(timeout=PATIENCE_MS)
# The upper part of the heat map, in which the slowest are.
SLOWEST = 0.25


class Explorer:
    """The page of a directory, and the clicks so far. A drag and a choice in a list count as clicks."""

    def __init__(self, page: Page, case: str, row: int) -> None:
        """Keep a picture of the page as it opens."""
        self.page, self.case, self.row, self.clicks = page, case, row, 0
        expect(page.locator("#heat")).to_have_attribute("data-state", "shown")
        self._keep()

    def click(self, at: str, *, then: str) -> None:
        """Click on the first element of a selector, and wait for another one."""
        self.page.locator(at).first.click()
        self._clicked(then)

    def choose(self, entry: str, *, in_list: str, then: str) -> None:
        """Choose an entry of a list."""
        self.page.locator(in_list).select_option(entry)
        self._clicked(then)

    def drag_over_the_slowest(self) -> None:
        """Drag over the upper part of the heat map."""
        box = self.page.locator("#heat canvas.over").bounding_box()
        self.page.mouse.move(box["x"] + 70, box["y"] + 10)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + box["width"] - 20, box["y"] + box["height"] * SLOWEST, steps=5)
        self.page.mouse.up()
        self._clicked("#selection[data-state=shown] .why[data-state=shown]")

    def open_row(self) -> None:
        """Open the neighbourhood of a slow record."""
        self.click(f"#selection .records tbody tr >> nth={self.row}", then="#near[data-state=shown]")

    def _clicked(self, then: str) -> None:
        self.clicks += 1
        self.page.wait_for_selector(then, state="attached")
        self._keep()

    def _keep(self) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"case-{self.case}-{self.clicks}.png")


STARTED = "#near[data-state=shown] [aria-pressed=true]:text('Its start')"


def redis_clicks(explorer: Explorer) -> None:
    """From the slow requests to the packet that went astray."""
    explorer.drag_over_the_slowest()
    explorer.open_row()
    explorer.click("#near button:text('Its start')", then=STARTED)
    explorer.click("#near .record button:text('client_port')", then="#near .record [aria-pressed=true]")


def rocksdb_clicks(explorer: Explorer) -> None:
    """From the slow reads to the pages that the slowest of them waited for."""
    explorer.choose("pread64", in_list="#index", then="#heat[data-state=shown] h2:text('pread64')")
    explorer.drag_over_the_slowest()
    explorer.open_row()
    explorer.click("#near button:text('Its start')", then=STARTED)
    explorer.click("#near .record button:text('pid')", then="#near .record [aria-pressed=true]")


def look(case: str, directory: str, row: int, clicks: Callable[[Explorer], None]) -> dict[str, Any]:
    """Open the explorer, click, and return the rows of the neighbourhood at the end."""
    command = [sys.executable, "-m", "loom_duckdb.explore", "--no-browser", "--port", "0", "--timeout", "60", directory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PATIENCE_MS)
            page.goto(server.stdout.readline().removeprefix("explore: ").strip())
            explorer = Explorer(page, case, row)
            clicks(explorer)
            rows = page.locator("#near > .table tbody tr").all_inner_texts()
            return {"clicks": explorer.clicks, "record": page.locator("#near .record").inner_text(), "near": rows}
        finally:
            server.terminate()


class Agent:
    """The server for agents of a directory, and the calls so far."""

    def __init__(self, client: Client, directory: str) -> None:
        """Begin without a call."""
        self.client, self.directory, self.calls = client, directory, 0

    async def ask(self, tool: str, **arguments: object) -> list[dict[str, Any]]:
        """Call a tool, and return its rows."""
        self.calls += 1
        result = await self.client.call_tool(tool, arguments)
        if result.is_error:
            raise RuntimeError(f"{tool}: {result.content[0].text}")
        answer = json.loads(result.content[0].text)
        return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]

    async def slowest(self, source: str, index: str) -> list[dict[str, Any]]:
        """Return the slowest one in ten thousand, as far as an answer has room for them."""
        (usual,) = await self.ask("quantiles", source=source, index=index)
        return await self.ask("top", source=source, index=index, n=min(max(1, usual["count"] // 10_000), 100))


def starts(slow: list[dict[str, Any]]) -> str:
    """Write the times at which records with the time of their end began."""
    return ", ".join(f"TIMESTAMPTZ '{row['ts']}' - to_microseconds({row['latency_ns'] // 1000})" for row in slow)


async def redis_calls(agent: Agent) -> list[dict[str, Any]]:
    """From the slow requests to the packets that went astray: source port and sequence number."""
    await agent.ask("sources")
    slow = await agent.slowest("redis_request", "latency")
    near = f"loom_near('{agent.directory}', 'packet', [{starts(slow)}], INTERVAL 20 MILLISECOND)"
    ports = f"src_port IN ({', '.join(sorted({str(row['client_port']) for row in slow}))})"
    counted = await agent.ask("sql", query=f"SELECT dst_port, count(*) AS packets FROM {near} WHERE {ports} GROUP BY ALL")
    odd = min(counted, key=lambda row: row["packets"])["dst_port"]
    number = "('0x' || hex(packet)[77:84])::UBIGINT AS tcp_seq"
    return await agent.ask("sql", query=f"SELECT DISTINCT src_port, {number} FROM {near} WHERE {ports} AND dst_port = {odd}")


async def rocksdb_calls(agent: Agent) -> list[dict[str, Any]]:
    """From the slow reads to the pages that entered the page cache when they began."""
    await agent.ask("sources")
    slow = await agent.slowest("syscall", "pread64")
    near = f"loom_near('{agent.directory}', 'pagecache', [{starts(slow)}], INTERVAL 1 MILLISECOND)"
    counts = f"{len(slow)} AS slow, count(DISTINCT hit) AS with_pages, count(*) AS insertions"
    return await agent.ask("sql", query=f"SELECT {counts} FROM {near} WHERE op = 'add' AND comm = '{slow[0]['comm']}'")


async def call(directory: str, calls: Callable[[Agent], Any]) -> dict[str, Any]:
    """Start the server for agents, call it, and return its last answer."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "loom_duckdb.mcp", directory])
    async with Client(stdio_client(server)) as client:
        agent = Agent(client, directory)
        found = await calls(agent)
        return {"calls": agent.calls, "found": found}


CASES = {"redis": (redis_clicks, redis_calls), "rocksdb": (rocksdb_clicks, rocksdb_calls)}


def main() -> None:
    """Look at a case and print what was found."""
    case, directory, row = sys.argv[1:]
    clicks, calls = CASES[case]
    print(json.dumps(look(case, directory, int(row), clicks) | asyncio.run(call(directory, calls))))


if __name__ == "__main__":
    main()
