"""The explorer's server under attack: it reads only the given directories, within its limits."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb
import pytest
import versions
from conftest import RECORDS, Explorer, until

from loom_duckdb.explore import limits
from loom_duckdb.explore.database import Database

Start = Callable[..., Explorer]


@pytest.fixture(scope="module")
def shown(explore: Start, shop: Path) -> Explorer:
    return explore(shop, "--timeout", "3")


def test_a_select_about_the_directory_is_answered(shown: Explorer, shop: Path) -> None:
    status, answer = shown.query(f"SELECT count(*) AS records, min(ts) AS first FROM loom_scan('{shop}', 'request')")
    assert status == 200
    assert answer["names"] == ["records", "first"]
    assert answer["columns"] == [[RECORDS], [1772323200000000]]
    assert answer["truncated"] is False


def test_values_that_a_browser_cannot_hold_become_text(shown: Explorer) -> None:
    status, answer = shown.query(
        "SELECT 9007199254740993 AS big, 'inf'::DOUBLE AS endless, 'ab'::BLOB AS bytes, NULL AS nothing, "
        "1.50::DECIMAL(4, 2) AS exact, [1, 2] AS list"
    )
    assert status == 200
    assert answer["columns"] == [["9007199254740993"], ["inf"], ["61 62"], [None], ["1.50"], ["[1, 2]"]]


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO x VALUES (1)",
        "CREATE TABLE x (i INTEGER)",
        "COPY (SELECT 1) TO '{shop}/out.csv'",
        "ATTACH '{shop}/own.duckdb'",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE x",
        "PRAGMA version",
        "PRAGMA loom_attach('{shop}')",
        "CALL enable_logging()",
        "SET threads = 1",
        "RESET lock_configuration",
        "LOAD '/tmp/evil.duckdb_extension'",
        "INSTALL httpfs",
        "EXPLAIN ANALYZE SELECT 1",
        "",
        "-- nothing",
    ],
)
def test_what_is_not_one_select_is_refused(shown: Explorer, shop: Path, sql: str) -> None:
    status, answer = shown.query(sql.format(shop=shop))
    assert status == 403
    assert re.search("send (one|a) SELECT", answer["error"])
    assert {path.name for path in shop.iterdir()}.isdisjoint({"out.csv", "own.duckdb"})


@pytest.mark.parametrize(
    "sql",
    [
        "FROM read_csv('/etc/passwd')",
        "FROM read_text('/etc/passwd')",
        "FROM read_text('{shop}/../request.parquet')",
        "FROM '/etc/passwd'",
        "FROM '{shop}/../request.parquet'",
        "FROM glob('/etc/*')",
        "FROM read_parquet('http://127.0.0.1:1/x.parquet')",
        "FROM loom_sources('{other}')",
        "FROM loom_scan('{other}', 'request')",
        "FROM loom_scan(['{shop}', '{other}'], 'request')",
        "FROM '{other}/request'",
        "FROM query('CREATE TABLE x (i INTEGER)')",
        "FROM enable_logging()",
        "FROM os",
        "SELEC 1",
    ],
)
def test_nothing_outside_the_given_directory_is_read(shown: Explorer, shop: Path, other: Path, sql: str) -> None:
    status, answer = shown.query(sql.format(shop=shop, other=other))
    assert status == 400, answer
    assert "columns" not in answer


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, ingestd: str, shop: Path) -> Path:
    directory = tmp_path_factory.mktemp("other") / "other.loom"
    options = ["--source", "request", "--ts", "ts", str(shop.parent / "request.parquet")]
    subprocess.run([ingestd, "load", str(directory), *options], check=True, capture_output=True)
    return directory


def test_a_glob_finds_only_the_given_directory(shown: Explorer, shop: Path, other: Path) -> None:
    pattern = other.parent.parent / "*[0-9]" / "*.loom"
    assert {shop, other} <= set(pattern.parent.parent.glob("*[0-9]/*.loom"))
    _, answer = shown.query(f"SELECT dir FROM loom_sources('{pattern}')")
    assert answer["columns"] == [[str(shop)]]


def test_a_huge_result_is_cut(shown: Explorer) -> None:
    status, answer = shown.query("SELECT range FROM range(1000000000000)")
    assert status == 200
    assert answer["truncated"] is True
    assert len(answer["columns"][0]) == limits.ROWS_MAX


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 100_000) FROM range(100_000)",
        "SELECT repeat('x', 4_000_000_000)",
        "SELECT list(range) FROM range(1_000_000_000)",
        "SELECT range, random() FROM range(1_000_000_000) ORDER BY 2",
    ],
)
def test_memory_stays_bounded(shown: Explorer, sql: str) -> None:
    shown.query(sql)
    for process in [shown.process.pid, *children(shown.process.pid)]:
        status = Path(f"/proc/{process}/status").read_text()
        peak_kib = int(status.partition("VmHWM:")[2].split()[0])
        assert peak_kib * 1024 <= limits.WORKER_BYTES_MAX
    assert shown.query("SELECT 1")[0] == 200


def text_of(file: Path) -> str:
    """Return the text of a file of /proc; nothing if its process or thread has just ended."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(process: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{process}/task").iterdir() for child in text_of(task / "children").split()]


def workers(explorer: Explorer) -> set[int]:
    """Return the processes of an explorer that run queries."""
    return {child for child in children(explorer.process.pid) if "spawn_main" in text_of(Path(f"/proc/{child}/cmdline"))}


def test_workers_start_ahead_and_no_query_starts_another(explore: Start, shop: Path) -> None:
    explorer = explore(shop)
    until(lambda: len(workers(explorer)) == limits.QUERIES_AT_ONCE)
    before = workers(explorer)
    with ThreadPoolExecutor(limits.QUERIES_AT_ONCE) as callers:

        def statuses() -> list[int]:
            answers = callers.map(explorer.query, ["SELECT sum(range) FROM range(10_000_000)"] * limits.QUERIES_AT_ONCE)
            return [status for status, _ in answers]

        for _ in range(3):
            assert statuses() == [200] * limits.QUERIES_AT_ONCE
        assert workers(explorer) == before
        dead = min(before)
        os.kill(dead, signal.SIGKILL)
        # Another worker replaces a dead one, as a rule before a query meets it.
        until(lambda: statuses() == [200] * limits.QUERIES_AT_ONCE)
        assert dead not in workers(explorer)
        until(lambda: len(workers(explorer)) == limits.QUERIES_AT_ONCE)


def test_a_server_that_is_told_to_end_ends_without_an_error(explore: Start, shop: Path) -> None:
    explorer = explore(shop)
    until(lambda: len(workers(explorer)) == limits.QUERIES_AT_ONCE)
    explorer.process.terminate()
    assert explorer.process.wait(60) == 0


@pytest.mark.parametrize("started", range(1, limits.QUERIES_AT_ONCE + 1))
def test_ctrl_c_ends_a_server_without_an_error_while_its_workers_start(shop: Path, started: int) -> None:
    command = [sys.executable, "-m", "loom_duckdb.explore", "--no-browser", "--port", "0", str(shop)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            explorer = Explorer(process)
            # The last one has just begun.
            until(lambda: len(workers(explorer)) >= started)
            # A terminal sends it to all processes.
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "")


def test_a_worker_that_dies_of_its_query_is_replaced(shown: Explorer, shop: Path) -> None:
    # The first query ignores its time limit, the second needs more memory than the limit.
    for sql in ("SELECT repeat('x', 2_000_000_000)", "SELECT list(i) FROM range(1_000_000_000) AS t(i)") * 3:
        assert shown.query(sql)[0] in (400, 504)
        assert shown.query(f"SELECT count(*) FROM loom_heat('{shop}', 'request', 'latency_us')")[0] == 200


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM range(1_000_000_000_000)",
        "SELECT sum(a.range * b.range) FROM range(10_000_000) AS a, range(10_000_000) AS b",
        "WITH RECURSIVE endless AS (SELECT 1 AS i UNION ALL SELECT i FROM endless) SELECT count(*) FROM endless",
    ],
)
def test_an_endless_query_is_stopped(shown: Explorer, sql: str) -> None:
    began = time.monotonic()
    status, answer = shown.query(sql)
    assert status == 504
    assert "took longer than 3 s" in answer["error"]
    assert time.monotonic() - began < 20
    assert shown.query("SELECT 1")[0] == 200


def test_queries_whose_callers_have_gone_make_room(explore: Start, shop: Path) -> None:
    patient = explore(shop, "--timeout", "600")
    place = urlsplit(patient.url)
    body = '{"sql": "SELECT count(*) FROM range(1000000000000)"}'
    callers = [http.client.HTTPConnection(place.hostname, place.port) for _ in range(limits.QUERIES_AT_ONCE)]
    for caller in callers:
        caller.request("POST", "/query", body, {"content-type": "application/json"})
    for caller in callers:
        caller.close()
    assert patient.query("SELECT 1")[0] == 200


def test_a_long_text_and_a_body_that_is_no_query_are_refused(shown: Explorer) -> None:
    assert shown.query("SELECT " + "1," * limits.SQL_BYTES_MAX)[0] == 413
    assert shown.request("query", {"text": "SELECT 1"})[0] == 400
    assert shown.request("query", ["SELECT 1"])[0] == 400


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"sql": "SELECT \'\\ud800\'"}', "lone surrogate"),
        ('{"sql": "\\udfff"}', "lone surrogate"),
        ('{"sql": ' + "[" * 30_000 + "]" * 30_000 + "}", "nested too deeply"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested too deeply"),
    ],
)
def test_a_body_that_python_can_hardly_hold_is_refused_and_its_worker_lives(shown: Explorer, body: str, reason: str) -> None:
    assert shown.query("SELECT 1")[0] == 200
    before = set(children(shown.process.pid))
    place = urlsplit(shown.url)
    caller = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    caller.request("POST", "/query", body, {"content-type": "application/json"})
    response = caller.getresponse()
    assert (response.status, reason in json.load(response)["error"]) == (400, True)
    caller.close()
    assert shown.query("SELECT 1")[0] == 200
    assert before <= set(children(shown.process.pid))


def test_a_form_of_another_page_is_refused(shown: Explorer) -> None:
    assert shown.request("query", {"sql": "SELECT 1"}, content_type="text/plain")[0] == 415


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "evil.example:8686", ""])
def test_a_name_that_leads_here_from_elsewhere_is_refused(shown: Explorer, host: str) -> None:
    for path in ("", "about", "static/explorer.js"):
        status, answer = shown.request(path, host=host)
        assert status == 403
        assert "Host" in answer["error"]


def test_an_address_of_the_network_requires_the_token(explore: Start, shop: Path) -> None:
    open_to_all = explore(shop, "--address", "0.0.0.0")  # noqa: S104
    (token,) = parse_qs(urlsplit(open_to_all.url).query)["token"]
    for headers in ({}, {"x_loom_token": "wrong"}, {"x_loom_token": token[:-1]}):
        assert open_to_all.request("query", {"sql": "SELECT 1"}, **headers)[0] == 401
        assert open_to_all.request("about", **headers)[0] == 401
        assert open_to_all.request("", **headers)[0] == 401
    assert open_to_all.request("query", {"sql": "SELECT 1"}, x_loom_token=token)[0] == 200
    assert open_to_all.request(f"about?token={token}")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.loom"], "cannot open Loom directory 'nowhere.loom': no such directory; create it with 'ingestd run nowhere.loom'"),
        (["--port", "99999", "."], "cannot listen on port 99999"),
        (["--address", "no.such.invalid", "."], "cannot listen on no.such.invalid"),
        (["host*.loom"], "quote no glob"),
    ],
)
def test_arguments_that_cannot_work_are_named(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "loom_duckdb.explore", "--no-browser", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert message in ended.stderr


@pytest.mark.parametrize("arguments", [["--timeout", "nan", "."], ["--timeout", "-1", "."], [""]])
def test_arguments_that_mean_nothing_are_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "loom_duckdb.explore", "--no-browser", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "is not a time" in ended.stderr or "is empty text" in ended.stderr


def test_a_directory_that_a_daemon_makes_later_is_read_then(explore: Start, shop: Path, tmp_path: Path, ingestd: str) -> None:
    later = tmp_path / "later.loom"
    later.mkdir()
    early = explore(later)
    status, answer = early.query(f"FROM loom_sources('{later}')")
    assert (status, "is not a Loom directory" in answer["error"]) == (400, True)
    options = ["--source", "request", "--ts", "ts", str(shop.parent / "request.parquet")]
    subprocess.run([ingestd, "load", str(later), *options], check=True, capture_output=True)
    until(lambda: early.query(f"SELECT records FROM loom_sources('{later}')")[1].get("columns") == [[RECORDS]])


def test_a_select_that_writes_is_refused_even_where_a_table_exists(shop: Path) -> None:
    database = Database([shop])
    database._connection.execute("CREATE TABLE x (i INTEGER)")
    with pytest.raises(duckdb.Error, match="read-only"):
        database.run("WITH made AS (INSERT INTO x VALUES (1) RETURNING i) FROM made", threading.Event())
    assert database.run("SELECT count(*) FROM x", threading.Event()).columns == [[0]]


def test_the_database_is_locked(shown: Explorer) -> None:
    _, answer = shown.query(
        "SELECT name, value FROM duckdb_settings() WHERE name IN ('lock_configuration', 'enable_external_access') ORDER BY name"
    )
    assert answer["columns"][1] == ["false", "true"]
    assert duckdb.__version__ == versions.NEWEST


def test_ingestd_hands_over_to_the_package_of_its_path(ingestd: str, shop: Path, tmp_path: Path) -> None:
    """`ingestd explore` starts the explorer of the python3 that PATH finds, and reports what to install if there is none."""
    installed = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [ingestd, "explore", str(shop), "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=installed) as process:
        try:
            status, answer = Explorer(process).query(f"SELECT name FROM loom_sources('{shop}') WHERE name = 'request'")
            assert (status, answer["columns"]) == (200, [["request"]])
        finally:
            process.kill()

    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    refused = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PATH": f"{bare}/bin"})
    assert refused.returncode == 1
    assert refused.stderr == (
        "ingestd: cannot start the explorer: python3 has no package loom_duckdb; install Loom's wheel there, with its extra 'explore'\n"
    )
