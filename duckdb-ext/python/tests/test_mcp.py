"""The server for agents, asked by the client of the Model Context Protocol's own SDK: each tool, hostile inputs, and the demo's needles."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import RECORDS
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server import MCPServer

import loom_duckdb
from loom_duckdb.explore.workers import Workers
from loom_duckdb.mcp import asking
from loom_duckdb.mcp.tools import server

READING = {"sources", "describe", "quantiles", "heat", "top", "near", "trace", "why", "sql"}

Ask = Callable[..., Any]


def served(*directories: Path, options: tuple[str, ...] = ()) -> StdioServerParameters:
    return StdioServerParameters(command=sys.executable, args=["-m", "loom_duckdb.mcp", *options, *map(str, directories)])


def with_client(server: StdioServerParameters | MCPServer, use: Callable[[Ask], Any]) -> Any:
    """Start a server and use it: `ask(tool, **arguments)` returns the answer, or a text that begins with `error: `."""

    async def run() -> Any:
        async with Client(stdio_client(server) if isinstance(server, StdioServerParameters) else server) as client:

            async def ask(name: str, /, **arguments: Any) -> Any:
                result = await client.call_tool(name, arguments)
                (content,) = result.content
                if result.is_error:
                    return f"error: {content.text}"
                answer = json.loads(content.text)
                assert content.text == json.dumps(answer, ensure_ascii=False, separators=(",", ":")), "the text is compact"
                return answer

            return await use(ask)

    return asyncio.run(run())


def answers(server: StdioServerParameters | MCPServer, *questions: tuple[str, dict[str, Any]]) -> list[Any]:
    async def use(ask: Ask) -> list[Any]:
        return [await ask(name, **arguments) for name, arguments in questions]

    return with_client(server, use)


@pytest.mark.parametrize("options", [(), ("--no-allow-pins",)])
def test_the_tools_are_described_and_only_one_changes_something(shop: Path, options: tuple[str, ...]) -> None:
    async def run() -> list[Any]:
        async with Client(stdio_client(served(shop, options=options))) as client:
            return (await client.list_tools()).tools

    tools = asyncio.run(run())
    assert {tool.name for tool in tools if tool.annotations.read_only_hint} == READING
    others = [(tool.name, tool.annotations.destructive_hint) for tool in tools if not tool.annotations.read_only_hint]
    assert others == ([] if options else [("pin", True)])
    assert all(tool.description for tool in tools)


def test_each_answer_is_right_and_has_its_sql_its_cost_and_its_losses(shop: Path) -> None:
    window = {"t_from": "2026-03-01T00:00:05Z", "t_to": "2026-03-01T00:00:10Z"}
    of = {"source": "request", "index": "latency_us"}
    listed, described, quantiles, heat, top, near, own = answers(
        served(shop),
        ("sources", {}),
        ("describe", {"source": "request"}),
        ("quantiles", of | window | {"filter": "latency_us >= 500"}),
        ("heat", of | window),
        ("top", of | {"n": 3, "last": "2 seconds"}),
        ("near", {"source": "request", "times": ["2026-03-01T00:00:07Z"], "width": "3 ms", "n": 2}),
        ("sql", {"query": f"SELECT count(*) AS n FROM loom_scan('{shop}', 'request')"}),
    )
    assert [row[:2] + row[-1:] for row in listed["rows"]] == [["request", RECORDS, ["latency_us"]]]
    assert all(isinstance(most, list) and len(most) == 5 for _, _, most in described["rows"])
    assert [row[:2] for row in described["rows"]] == [["id", "BIGINT"], ["latency_us", "UINTEGER"]]
    assert described["indexes"] == [{"index": "latency_us", "value": "latency_us", "filter": None}]
    found = dict(zip(quantiles["columns"], quantiles["rows"][0], strict=True))
    assert (found["count"], found["min"], found["max"], found["p50"]) == (2500, 500, 999, 749)
    assert sum(row[-1] for row in heat["rows"]) == 5000
    assert [row[top["columns"].index("latency_us")] for row in top["rows"]] == [999, 999, 998]
    assert [row[near["columns"].index("since_hit_us")] for row in near["rows"]] == [0, -1000]
    assert near["rows"][0][near["columns"].index("near_hit")] == 6
    assert own["rows"] == [[RECORDS]]
    with loom_duckdb.connect() as db:
        for answer in (quantiles, heat, top, near):
            assert answer["losses"].startswith("none")
            assert len(db.execute(answer["sql"]).fetchall()) == len(answer["rows"])
    assert all(answer["estimate"]["chunks"] > 0 for answer in (quantiles, heat, top, near))


def test_answers_are_small(shop: Path) -> None:
    wide, long, text = answers(
        served(shop),
        ("sql", {"query": "SELECT range, repeat('x', 10_000) FROM range(1_000_000)"}),
        ("sql", {"query": f"FROM loom_scan('{shop}', 'request')"}),
        ("sql", {"query": "SELECT repeat('y', 1_000_000)"}),
    )
    for answer in (wide, long, text):
        assert len(json.dumps(answer)) < 40_000
    assert "more than" in wide["more"]
    assert "of more than 20000 rows" in long["more"]
    assert text["rows"][0][0].endswith("…")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, ingestd: str, shop: Path) -> Path:
    directory = tmp_path_factory.mktemp("other") / "other.loom"
    load = [ingestd, "load", str(directory), "--source", "request", "--ts", "ts", str(shop.parent / "request.parquet")]
    subprocess.run(load, check=True, capture_output=True)
    return directory


def test_the_fields_and_indexes_of_a_wide_source_are_lists(ingestd: str, tmp_path: Path) -> None:
    fields = [f"quite_a_long_name_{number:03}" for number in range(150)]
    numbers, texts = fields[:24], fields[24:]
    defined = [f'{{ name = "{name}", type = "u32" }}' for name in numbers] + [f'{{ name = "{name}", type = "utf8" }}' for name in texts]
    (tmp_path / "wide.toml").write_text(f'[[source]]\nname = "wide"\nfield = [{", ".join(defined)}]\n')
    lines = [",".join(["ts", *fields])]
    lines += [",".join([f"2026-03-01T00:00:0{n}Z", *[str(n)] * len(numbers), *[f"{n}".rjust(40, "v")] * len(texts)]) for n in range(6)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    directory = tmp_path / "wide.loom"
    indexes = [argument for name in numbers for argument in ("--index", name)]
    options = ["--source", "wide", "--fields", str(tmp_path / "wide.toml"), "--ts", "ts", *indexes]
    subprocess.run([ingestd, "load", str(directory), *options, str(tmp_path / "rows.csv")], check=True, capture_output=True)
    listed, described = answers(served(directory), ("sources", {}), ("describe", {"source": "wide"}))
    assert listed["rows"][0][-1] == numbers
    shown = described["rows"]
    assert [row[0] for row in shown] == fields[: len(shown)]
    assert 100 < len(shown) < len(fields)
    assert all(len(most) == 5 for _, _, most in shown)
    assert described["more"].startswith(f"{len(shown)} of 150 fields are shown")
    (every,) = answers(served(directory), ("sql", {"query": described["more"].partition(": ")[2]}))
    assert {row[0] for row in every["rows"]} >= set(fields)


def test_the_estimate_of_why_covers_the_time_before(shop: Path) -> None:
    window = {"t_from": "2026-03-01T00:00:05Z", "t_to": "2026-03-01T00:00:10Z"}
    few = {"source": "request", "index": "latency_us", "v_min": 999} | window
    rest, before, both = answers(
        served(shop),
        ("why", few),
        ("why", few | {"against": "before"}),
        ("why", few | {"t_from": "2026-03-01T00:00:00Z"}),
    )
    assert before["estimate"] == both["estimate"]
    assert before["estimate"]["chunks"] > rest["estimate"]["chunks"]


def test_the_estimates_of_top_and_near_cover_what_they_may_read(ingestd: str, tmp_path: Path) -> None:
    duckdb.connect().execute(
        f"""COPY (SELECT TIMESTAMP '2026-03-01' + to_microseconds(i * 1000) AS ts, i::UINTEGER AS n, (i % 100)::UTINYINT AS kind,
                make_timestamp_ns(i + 1) AS due, 1_000_000_000_000 + i AS serial
            FROM range(300_000) AS numbers(i)) TO '{tmp_path}/rising.parquet'"""
    )
    directory = tmp_path / "rising.loom"
    load = [
        ingestd,
        "load",
        str(directory),
        "--source",
        "rising",
        "--ts",
        "ts",
        "--index",
        "n",
        "--index",
        "kind",
        "--index",
        "due",
        "--index",
        "serial",
    ]
    subprocess.run([*load, str(tmp_path / "rising.parquet")], check=True, capture_output=True)
    begin, middle, end = (f"2026-03-01T00:0{minute}:00Z" for minute in (1, 2, 4))
    top = {"source": "rising", "index": "n", "n": 3}
    near = {"source": "rising", "width": "5 ms"}
    greatest, least, latest, single, filtered, everywhere, one, other, both, twice = answers(
        served(directory),
        ("top", top),
        ("top", top | {"least": True}),
        ("top", top | {"index": "due"}),
        ("top", top | {"index": "serial", "n": 1}),
        ("top", top | {"filter": "kind = 1"}),
        ("top", top | {"index": "kind"}),
        ("near", near | {"times": [begin]}),
        ("near", near | {"times": [end]}),
        ("near", near | {"times": [end, begin]}),
        ("near", near | {"times": [begin, middle, begin[:-1] + ".004Z"]}),
    )
    with loom_duckdb.connect() as db:
        # Several threads may read a chunk more than once.
        db.execute("SET threads = 1")
        ((chunks,),) = db.execute(f"SELECT chunks FROM loom_estimate('{directory}', 'rising')").fetchall()
        for answer in (greatest, least, latest, single, filtered, everywhere, one, other, both, twice):
            db.execute(answer["sql"]).fetchall()
            ((read,),) = db.execute("SELECT chunks_read FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1").fetchall()
            estimate = answer["estimate"]["chunks"]
            # `loom_top` finds the values, and then reads the three records.
            assert read <= (2 * estimate + 3 if "loom_top" in answer["sql"] else estimate), answer
    assert chunks > 20
    assert [row[greatest["columns"].index("n")] for row in greatest["rows"]] == [299_999, 299_998, 299_997]
    assert all(0 < answer["estimate"]["chunks"] <= chunks / 10 for answer in (greatest, least, latest, single))
    assert filtered["estimate"]["chunks"] == chunks, "each chunk has records that match"
    assert everywhere["estimate"]["chunks"] == chunks, "each chunk has the greatest value"
    assert both["estimate"]["chunks"] == one["estimate"]["chunks"] + other["estimate"]["chunks"] <= chunks / 10


def test_a_question_that_would_read_too_much_is_refused(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "READ_BYTES_MAX", 1)
    of = {"source": "request", "index": "latency_us"}
    questions = (
        ("quantiles", of | {"filter": "id > 0"}),
        ("heat", of | {"filter": "id > 0"}),
        ("top", of),
        ("why", of | {"t_from": "2026-03-01T00:00:05Z", "t_to": "2026-03-01T00:00:10Z"}),
        ("near", {"source": "request", "times": ["2026-03-01T00:00:07Z"]}),
    )
    in_process = server(asking.Asker(Workers([shop]), 30), allow_pins=False)
    for (tool, _), answer in zip(questions, answers(in_process, *questions), strict=True):
        assert isinstance(answer, str), (tool, answer)
        assert "the question would read" in answer, (tool, answer)


def test_hostile_inputs_are_refused_and_the_server_lives(shop: Path, other: Path) -> None:
    statements = [
        "SELECT 1; DROP TABLE x",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "FROM read_text('/etc/passwd')",
        f"FROM loom_scan('{other}', 'request')",
        f"ATTACH '{shop}/own.duckdb'",
        "SET threads = 1",
        "PRAGMA version",
        "",
        "\x00",
        "SELECT " + "1," * 100_000,
        "SELECT " + "1," * 10_000,
        "(" * 10_000,
    ]
    of = {"source": "request", "index": "latency_us"}
    questions = [
        *(("sql", {"query": statement}) for statement in statements),
        ("sources", {"dir": str(other)}),
        ("sources", {"dir": "/etc"}),
        ("describe", {"source": "x'); DROP TABLE y; --"}),
        ("quantiles", of | {"index": "x') FROM read_text('/etc/passwd') --"}),
        ("quantiles", of | {"filter": "latency_us > 1') --"}),
        ("quantiles", of | {"t_from": "yesterday'; SELECT 1 --"}),
        ("quantiles", of | {"last": "1 second'::INTERVAL) FROM read_text('/etc/passwd') --"}),
        ("quantiles", of | {"t_from": "2026-03-02T00:00:00Z", "t_to": "2026-03-01T00:00:00Z"}),
        ("quantiles", of | {"last": "1 s", "t_from": "2026-03-01T00:00:00Z"}),
        ("quantiles", of | {"t_to": "294246-12-31"}),
        ("quantiles", of | {"t_from": "-infinity"}),
        ("top", of | {"n": 1_000_000_000}),
        ("top", of | {"n": "1); DROP TABLE y"}),
        ("near", {"source": "request", "times": ["2026-03-01'] --"]}),
        ("near", {"source": "request", "times": [], "width": "1 ms"}),
        ("near", {"source": "request", "times": ["2026-03-01"], "rare": ['id" --']}),
        ("near", {"source": "request", "times": ["2026-03-01"], "width": "1 ms' --"}),
        ("trace", {"trace_id": "x' OR true --"}),
        ("nothing", {}),
    ]

    async def use(ask: Ask) -> list[Any]:
        found = []
        for name, arguments in questions:
            try:
                found.append(await ask(name, **arguments))
            except Exception as error:
                found.append(f"error: {error}")
        return [*found, await ask("sql", query="SELECT 42 AS n")]

    *refused, last = with_client(served(shop), use)
    for question, answer in zip(questions, refused, strict=True):
        assert isinstance(answer, str), (question, answer)
        assert answer.startswith("error: "), (question, answer)
        assert not answer.endswith(f"Error executing tool {question[0]}"), (question, "no reason")
        assert "Traceback" not in answer, (question, answer)
        assert "root:" not in answer, (question, answer)
    assert last["rows"] == [[42]]
    assert not Path("/tmp/out.csv").exists()  # noqa: S108


def test_an_endless_query_is_stopped_and_two_directories_are_told_apart(shop: Path, other: Path) -> None:
    endless, unnamed, named = answers(
        served(shop, other, options=("--timeout", "2")),
        ("sql", {"query": "SELECT count(*) FROM range(1_000_000_000_000)"}),
        ("sources", {}),
        ("sources", {"dir": str(other)}),
    )
    assert "took longer than 2 s" in endless
    assert str(shop) in unnamed
    assert str(other) in unnamed
    assert named["dir"] == str(other)


def test_memory_and_a_huge_bound_have_their_reason_and_their_answer(shop: Path) -> None:
    times = {"t_from": "2026-03-01T00:00:05Z", "t_to": "2026-03-01T00:00:10Z"}
    large, *bounded = answers(
        served(shop),
        ("sql", {"query": "SELECT list(range) FROM range(300_000_000)"}),
        *(("why", {"source": "request", "index": "latency_us", "v_min": least} | times) for least in (1e308, 2.0**63, -1e308)),
    )
    assert "needed more memory than 1GiB; choose a shorter window" in large
    assert "temp_directory" not in large, "the agent cannot change DuckDB's settings"
    ids = [sum(row["selected"] for row in rows(answer) if row["field"] == "id") for answer in bounded]
    assert ids[:2] == [0, 0]
    assert ids[2] > 0


def test_what_is_lost_is_said(ingestd: str, tmp_path: Path) -> None:
    (tmp_path / "gauge.toml").write_text('[[source]]\nname = "gauge"\nfield = [{ name = "v", type = "u8" }]\n')
    (tmp_path / "rows.csv").write_text("ts,v\n2026-03-01T00:00:00Z,1\n2026-03-01T00:00:01Z,wrong\n2026-03-01T00:00:02Z,3\n")
    directory = tmp_path / "lossy.loom"
    options = ["--source", "gauge", "--fields", str(tmp_path / "gauge.toml"), "--ts", "ts", "--index", "v"]
    loaded = subprocess.run([ingestd, "load", str(directory), *options, str(tmp_path / "rows.csv")], capture_output=True, text=True)
    assert "refused=1" in loaded.stdout, loaded
    (answer,) = answers(served(directory), ("quantiles", {"source": "gauge", "index": "v", "t_to": "2100-01-01"}))
    assert answer["losses"][0]["records"] == 1, answer


def test_five_calls_find_the_six_needles_of_the_demo(ingestd: str, tmp_path: Path) -> None:
    """The worked example of the page for agents."""
    directory, truth = tmp_path / "demo.loom", tmp_path / "truth.jsonl"
    demo = [ingestd, "demo", str(directory), "--seconds", "15", "--rate", "300000", "--truth", str(truth)]
    subprocess.run(demo, check=True, capture_output=True)

    async def use(ask: Ask) -> tuple[list[dict], list[dict], list[dict], Any, str]:
        await ask("sources")
        usual = rows(await ask("quantiles", source="redis_request", index="latency"))[0]["p99_99"]
        slowest = rows(await ask("top", source="redis_request", index="latency", n=20))
        slow = [row for row in slowest if row["latency_ns"] > 5 * usual]
        near = {"times": [row["ts"] for row in slow], "width": "20 ms"}
        calls = rows(await ask("near", source="syscall", index="latency", n=1, **near))
        packets = rows(await ask("near", source="packet", rare=["src_port", "dst_port"], **near))
        of_request = {"source": "redis_request", "index": "latency", "t_from": slow[0]["ts"][:19] + "Z", "t_to": "2100-01-01T00:00:00Z"}
        why = await ask("why", n=1, v_min=5 * usual, **of_request)
        unknown = await ask("near", source="packet", rare=["src_port", "nosuch"], **near)
        return slow, calls, packets, why, unknown

    slow, calls, packets, why, unknown = with_client(served(directory), use)
    needles = [json.loads(line) for line in truth.read_text().splitlines()]
    assert len(needles) == 6
    assert {row["id"] for row in slow} == {needle["request"] for needle in needles}
    assert {row["id"] for row in calls} == {needle["syscall"] for needle in needles}
    assert {row["id"] for row in packets} == {needle["packet"] for needle in needles}
    # The best rows of the fields come first, and the other sources are never left out.
    found = rows(why)
    assert [row["kind"] == "source" for row in found] == [False] + [True] * (len(found) - 1)
    assert {row["source"] for row in found[1:]} >= {"syscall", "packet"}
    assert why["fields_compared"] > 1
    assert why["more"].startswith(f"{len(found)} of ")
    assert "the source 'packet' has no field 'nosuch'; its fields are: id, " in unknown


def rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
