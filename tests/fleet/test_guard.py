"""A token grants questions about one Loom directory. Everything else that its holder tries is refused or harmless."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

import loom_duckdb
from attacks import ANSWERED, REFUSED, strange
from loom_duckdb.files import load_statement

from conftest import DUCKDB, ROOT, TOKEN, Host, client, free_port, requests


@pytest.fixture(scope="module")
def victim(load: Callable[..., Path], hosted: Callable[..., Host], tmp_path_factory: pytest.TempPathFactory) -> tuple[Host, dict[str, str]]:
    """Serve a directory beside one that is not served and a file. Return the replacements of the names in attacks."""
    place = tmp_path_factory.mktemp("attack")
    (place / "secret.csv").write_text("word\nsecret\n")
    host = hosted(load("served", requests(1, 1000), "--index", "latency_us"))
    names = {
        "secret": str(place / "secret.csv"),
        "out": str(place / "out"),
        "other": str(load("other", requests(2, 1000))),
        "address": host.address,
        "token": TOKEN,
    }
    return host, names


def attack(question: str, names: dict[str, str]) -> str:
    """Replace the names in an attack."""
    for name, value in names.items():
        question = question.replace("{" + name + "}", value)
    return question


@pytest.mark.parametrize("question", REFUSED.values(), ids=REFUSED.keys())
def test_an_attack_is_refused_and_the_host_still_answers(victim: tuple[Host, dict[str, str]], question: str) -> None:
    host, names = victim
    with pytest.raises(duckdb.Error, match=r"cannot answer the question|Authorization failed") as refusal:
        host.ask(attack(question, names))
    assert "word" not in str(refusal.value)
    assert not Path(names["out"]).exists()
    assert host.ask("SELECT count(*) FROM host_scan('request')") == [(1000,)]


@pytest.mark.parametrize(("question", "answer"), ANSWERED.values(), ids=ANSWERED.keys())
def test_a_harmless_question_is_answered(victim: tuple[Host, dict[str, str]], question: str, answer: object) -> None:
    assert victim[0].ask(question) == [(answer,)]


@pytest.mark.parametrize(
    "name", ["duckdb_settings", "duckdb_secrets", "duckdb_functions", "whoami", "host_sources", "loom_sources", "request"]
)
def test_a_name_that_a_question_defines_means_nothing_outside_of_its_scope(victim: tuple[Host, dict[str, str]], name: str) -> None:
    with pytest.raises(duckdb.Error, match=f"Table with name {name} does not exist"):
        victim[0].ask(f"SELECT * FROM (WITH {name} AS (SELECT 1) SELECT 1) AS a, {name}")


def test_a_refusal_names_what_was_refused_and_what_to_ask(victim: tuple[Host, dict[str, str]]) -> None:
    with pytest.raises(duckdb.Error, match=r"it calls read_text; ask one SELECT over host_scan and its kin.*sql/docs/hosts\.md"):
        victim[0].ask("FROM read_text('/etc/passwd')")


def test_a_refusal_that_quotes_the_question_runs_nothing_of_it(victim: tuple[Host, dict[str, str]]) -> None:
    with pytest.raises(duckdb.Error, match=r"it calls x'\) from duckdb_settings\(\) --"):
        victim[0].ask("""SELECT "x') FROM duckdb_settings() --"(1)""")


def test_a_wrong_token_is_refused(victim: tuple[Host, dict[str, str]]) -> None:
    with pytest.raises(duckdb.Error, match="Authentication failed"):
        victim[0].ask("SELECT 1", token="another-token-of-the-same-kind")


def test_an_attached_host_shows_nothing_and_takes_nothing(victim: tuple[Host, dict[str, str]]) -> None:
    db = client()
    attach = f"ATTACH '{victim[0].address}' AS host (TYPE quack, TOKEN '{TOKEN}')"
    for question in ("SHOW ALL TABLES", "CREATE TABLE host.main.mine AS SELECT 1 AS a", "FROM host.main.request"):
        with pytest.raises(duckdb.Error, match=r"cannot answer the question|Authorization failed|not attached|does not exist"):
            db.execute(f"{attach}; {question}")
        db.execute("DETACH DATABASE IF EXISTS host")


def test_without_the_guard_the_settings_still_refuse_files_and_changes(victim: tuple[Host, dict[str, str]], tmp_path: Path) -> None:
    with unguarded(victim[0].directory, tmp_path) as (db, address):
        asked = [address, "SELECT current_setting('quack_authorization_function')"]
        ask = "FROM quack_query(?, ?, token := '" + TOKEN + "')"
        assert db.execute(ask, asked).fetchall() == [("quack_nop_authorization",)]
        names = ("a file as text", "a file in place of a table", "writing a file", "loading an extension", "attaching a file", "a table",
                 "a setting", "the guard's setting", "external access", "dropping a macro")  # fmt: skip
        for name in names:
            with pytest.raises(duckdb.Error):
                db.execute(ask, [address, attack(REFUSED[name], victim[1])])
    assert not Path(victim[1]["out"]).exists()


def test_the_server_is_confined_to_its_directory(victim: tuple[Host, dict[str, str]]) -> None:
    variables = Path(f"/proc/{victim[0].server()}/environ").read_text().split("\0")
    assert f"LOOM_SERVED={victim[0].directory.resolve()}" in variables


def test_without_the_guard_the_extension_still_reads_no_other_directory(victim: tuple[Host, dict[str, str]], tmp_path: Path) -> None:
    ask = f"FROM quack_query(?, ?, token := '{TOKEN}')"
    others = [question for name, question in REFUSED.items() if name.startswith("another Loom directory")]
    assert len(others) > 3
    with unguarded(victim[0].directory, tmp_path) as (db, address):
        for question in [*others, "FROM loom_scan(['{other}', '{other}'], 'request')", "FROM loom_sources('{other}*')"]:
            with pytest.raises(duckdb.Error, match="this process serves other directories only"):
                db.execute(ask, [address, attack(question, victim[1])])
        assert db.execute(ask, [address, "SELECT count(*) FROM host_scan('request')"]).fetchall() == [(1000,)]


def test_a_function_of_the_hosts_catalog_is_allowed_by_its_name_and_its_kind(victim: tuple[Host, dict[str, str]], tmp_path: Path) -> None:
    with unguarded(victim[0].directory, tmp_path) as (db, address):
        question = """SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()
            WHERE function_type <> 'pragma' AND lower(function_name) IN
                (SELECT unnest(CASE WHEN function_type LIKE 'table%' THEN host_tables() ELSE host_functions() END))"""
        answered = db.execute(f"FROM quack_query(?, ?, token := '{TOKEN}')", [address, question]).fetchall()
    assert {"host_scan", "unnest", "sum", "histogram"} <= {name for name, _ in answered}
    assert ("histogram", "table_macro") not in answered
    assert strange(answered) == []


@contextlib.contextmanager
def unguarded(directory: Path, place: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """Serve a directory with the files that `ingestd serve` runs, with a guard that lets everything pass. Give a client and the address."""
    address = f"quack:localhost:{free_port()}"
    loads = f"LOAD '{loom_duckdb.extension_path()}'; {load_statement('httpfs')}; {load_statement('quack')};\n"
    variables = f"SET VARIABLE host_listen = '{address}'; SET VARIABLE host_token = '{TOKEN}';\n"
    macros, statements = ((ROOT / "sql" / script).read_text() for script in ("host.sql", "serve.sql"))
    statements = statements.replace("'host_authorize'", "'quack_nop_authorization'")
    command = [DUCKDB, "-no-init", "-unsigned", "-bail"]
    environment = {"LOOM_DIR": str(directory), "LOOM_SERVED": str(directory)}
    subprocess.run([*command, place / "host.duckdb"], input=loads + macros, text=True, check=True, env=environment)
    command += ["-readonly", place / "host.duckdb"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            server.stdin.write(loads + variables + statements)
            server.stdin.flush()
            assert any(line.strip() == f"serve: {address}" for line in server.stdout)
            yield client(), address
        finally:
            server.kill()
