"""A token grants questions about one Loom directory: every other thing that its holder tries is refused, or harmless."""

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from conftest import ROOT, TOKEN, Host, client, requests

# What the names in braces stand for, `attack` says. A refusal names the first thing that no list of the guard holds.
REFUSED = {
    "a file as text": "FROM read_text('{secret}')",
    "a file as bytes": "FROM read_blob('{secret}')",
    "a file as csv": "FROM read_csv('{secret}')",
    "a file as csv, found out": "FROM read_csv_auto('{secret}')",
    "a file as json": "FROM read_json('{secret}')",
    "a file as json objects": "FROM read_json_objects('{secret}')",
    "a file as parquet": "FROM read_parquet('{secret}')",
    "a file's dialect": "FROM sniff_csv('{secret}')",
    "a parquet file's metadata": "FROM parquet_metadata('{secret}')",
    "a file in place of a table": "FROM '{secret}'",
    "a file in place of a table, quoted": 'SELECT * FROM "{secret}"',
    "a file in a subquery": "SELECT (SELECT content FROM read_text('{secret}'))",
    "a file in EXISTS": "SELECT 1 WHERE EXISTS (FROM read_text('{secret}'))",
    "a file in IN": "SELECT 'a' IN (SELECT content FROM read_text('{secret}'))",
    "a file in a lateral join": "FROM (SELECT '{secret}' AS f) AS t, LATERAL (FROM read_text(t.f))",
    "a file in a CTE": "WITH a AS (FROM read_text('{secret}')) FROM a",
    "a file in a materialized CTE": "WITH a AS MATERIALIZED (FROM read_text('{secret}')) FROM a",
    "a file in a CTE of a subquery": "SELECT (WITH a AS (FROM read_text('{secret}')) SELECT content FROM a)",
    "a file in UNION": "SELECT 'a' UNION ALL SELECT content FROM read_text('{secret}')",
    "a file in ORDER BY": "SELECT 1 AS x ORDER BY (SELECT content FROM read_text('{secret}'))",
    "a file in LIMIT": "SELECT 1 LIMIT (SELECT length(content) FROM read_text('{secret}'))",
    "a file in a macro's argument": "FROM host_tail('request', (SELECT length(content) FROM read_text('{secret}')))",
    "a file in a window": "SELECT max(1) OVER (ORDER BY (SELECT content FROM read_text('{secret}')))",
    "a file in a lambda": "SELECT list_transform([1], lambda x: (SELECT content FROM read_text('{secret}')))",
    "a file in CASE": "SELECT CASE WHEN true THEN (SELECT content FROM read_text('{secret}')) END",
    "a file in FILTER": "SELECT count(*) FILTER (EXISTS (FROM read_text('{secret}')))",
    "a file in VALUES": "VALUES ((SELECT content FROM read_text('{secret}')))",
    "a file in REPLACE": "SELECT * REPLACE ((SELECT content FROM read_text('{secret}')) AS id) FROM host_tail('request', 1)",
    "a file in USING SAMPLE's query": "FROM (FROM read_text('{secret}')) USING SAMPLE 1",
    "a CTE named as a path, in another scope": 'SELECT * FROM (WITH "{secret}" AS (SELECT 1) FROM "{secret}"), \'{secret}\'',
    "a CTE named as a path": "WITH \"{secret}\" AS (SELECT 1 AS a) FROM '{secret}'",
    "a CTE named as a Loom path, in another scope": "SELECT * FROM (WITH \"{other}/request\" AS (SELECT 1) SELECT 1), '{other}/request'",
    "a CTE named as the catalog's view, in another scope": "SELECT * FROM (WITH duckdb_logs AS (SELECT 1) SELECT 1), duckdb_logs",
    "a CTE named as the catalog's view, in other letters": "SELECT * FROM (WITH DUCKDB_LOGS AS (SELECT 1) SELECT 1), Duckdb_Logs",
    "a function in capitals": "FROM READ_TEXT('{secret}')",
    "a function in quotes": "FROM \"read_text\"('{secret}')",
    "a function between comments": "FROM/**/read_text/**/('{secret}') -- host_scan",
    "a function of a schema": "FROM main.read_text('{secret}')",
    "a function of a catalog": "FROM system.main.read_text('{secret}')",
    "a function as a method": "SELECT ('FROM read_text(''{secret}'')').query()",
    "a list of files": "FROM glob('/*')",
    "a glob in place of a table": "FROM '/etc/*.conf'",
    "SQL as text": "FROM query('FROM read_text(''{secret}'')')",
    "a table by its name": "FROM query_table('{secret}')",
    "a serialized statement": "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''{secret}'')'))",
    "another Loom directory": "FROM loom_scan('{other}', 'request')",
    "another Loom directory's sources": "FROM loom_sources('{other}')",
    "the own directory by its function": "FROM loom_scan(NULL, 'request')",
    "another Loom directory in place of a table": "FROM '{other}/request'",
    "a glob of Loom directories": "FROM '{other}*'",
    "writing a file": "COPY (SELECT 1) TO '{out}'",
    "writing a file from a CTE": "WITH a AS (SELECT 1) COPY a TO '{out}'",
    "reading into a table": "COPY secrets FROM '{secret}'",
    "exporting": "EXPORT DATABASE '{out}'",
    "loading an extension": "LOAD '{secret}'",
    "installing an extension": "INSTALL spatial",
    "attaching a file": "ATTACH '{out}' AS mine",
    "attaching memory": "ATTACH ':memory:' AS mine",
    "detaching": "DETACH host",
    "using another catalog": "USE system",
    "a table": "CREATE TABLE mine (a INTEGER)",
    "a temporary table": "CREATE TEMP TABLE mine AS SELECT 1",
    "a view": "CREATE VIEW mine AS FROM host_scan('request')",
    "a temporary view": "CREATE TEMP VIEW mine AS FROM host_scan('request')",
    "a macro by the name of the guard": "CREATE OR REPLACE MACRO host_authorize(a, b) AS b",
    "a temporary macro by the name of a function": "CREATE TEMP MACRO sum(a) AS TABLE FROM read_text(a)",
    "a type": "CREATE TYPE mine AS ENUM ('a')",
    "a sequence": "CREATE TEMP SEQUENCE mine",
    "a secret": "CREATE SECRET (TYPE quack, TOKEN 'abcd')",
    "dropping a macro": "DROP MACRO host_authorize",
    "rows": "INSERT INTO mine VALUES (1)",
    "rows into the temporary catalog": "INSERT INTO temp.mine VALUES (1)",
    "deleting": "DELETE FROM mine",
    "updating": "UPDATE mine SET a = 1",
    "merging": "MERGE INTO mine USING (SELECT 1 AS a) AS t ON t.a = mine.a WHEN MATCHED THEN DELETE",
    "writing in a CTE": "WITH a AS (DELETE FROM mine RETURNING *) FROM a",
    "a setting": "SET threads = 1",
    "the guard's setting": "SET GLOBAL quack_authorization_function = 'quack_nop_authorization'",
    "resetting": "RESET GLOBAL quack_authorization_function",
    "external access": "SET enable_external_access = true",
    "a variable": "SET VARIABLE a = 1",
    "a pragma": "PRAGMA enable_profiling",
    "a pragma that lists": "PRAGMA database_list",
    "profiling into a file": "PRAGMA profiling_output = '{out}'",
    "calling": "CALL quack_stop('{address}')",
    "stopping the server": "FROM quack_stop('{address}')",
    "starting a server": "FROM quack_serve('quack:localhost:1')",
    "the server's connections": "FROM quack_active_connections()",
    "the server's identity": "FROM whoami()",
    "another server": "FROM quack_query('{address}', 'SELECT 1', token := '{token}')",
    "another server by name": "FROM quack_query_by_name('host', 'SELECT 1')",
    "a page of the network": "FROM read_text('http://localhost/')",
    "others' questions in the log": "FROM duckdb_logs",
    "others' questions in the log's function": "FROM duckdb_logs()",
    "the logs as a table": "FROM duckdb_logs_parsed('Quack')",
    "starting a log": "CALL enable_logging('Quack')",
    "writing a log": "SELECT write_log('a')",
    "the guard's text": "FROM duckdb_functions()",
    "the settings": "FROM duckdb_settings()",
    "one setting": "SELECT current_setting('quack_authorization_function')",
    "the secrets": "FROM duckdb_secrets()",
    "which secret": "FROM which_secret('{address}', 'quack')",
    "the databases": "FROM duckdb_databases()",
    "the catalog's tables": "FROM information_schema.tables",
    "the catalog's views": "FROM sqlite_master",
    "the catalog of Postgres": "FROM pg_catalog.pg_prepared_statements",
    "the environment": "SELECT getenv('LOOM_TOKEN_FILE')",
    "a variable of the server": "SELECT getvariable('host_token')",
    "the guard's own macros": "SELECT host_authorize('a', 'b')",
    "the memory": "FROM duckdb_memory()",
    "a prepared statement": "PREPARE a AS FROM read_text('{secret}')",
    "executing": "EXECUTE a",
    "a parameter": "SELECT $1",
    "explaining": "EXPLAIN ANALYZE FROM read_text('{secret}')",
    "describing": "DESCRIBE FROM read_text('{secret}')",
    "summarizing": "SUMMARIZE FROM read_text('{secret}')",
    "showing": "SHOW ALL TABLES",
    "pivoting": "PIVOT (FROM read_text('{secret}')) ON filename USING max(content)",
    "pivoting in FROM": "FROM (PIVOT (SELECT 1 AS a, 2 AS b) ON a IN (1) USING max(b))",
    "two statements": "SELECT 1; FROM read_text('{secret}')",
    "two statements, the second hidden": "SELECT 1 /* ; */; SET threads = 1",
    "no statement": ";",
    "nothing": "",
    "a transaction": "BEGIN",
    "a checkpoint": "FORCE CHECKPOINT",
    "vacuum": "VACUUM",
    "an endless recursion": "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a) SELECT max(n) FROM a",
    "a long range": "SELECT count(*) FROM range(1_000_000_000_000)",
    "a long text": "SELECT length(repeat('a', 1_000_000_000))",
    "a type that the catalog has": "SELECT 1::mine",
    "a type whose parameter is a question": "SELECT 1::DECIMAL((SELECT length(content) FROM read_text('{secret}')), 1)",
    "an aggregate by its name": "SELECT list_aggregate([1], 'sum')",
    "a statement after a zero byte": "SELECT 1\x00; SET threads = 1",
    "deep brackets": "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
    "a long question": "SELECT " + "1 + " * 500_000 + "1",
}

ANSWERED = {
    "who asks": ("SELECT current_user", "duckdb"),
    "the catalog's name": ("SELECT current_catalog", "host"),
    "a text with a path in it": ("SELECT '/etc/passwd'", "/etc/passwd"),
    "a column by a function's name": ("SELECT a.read_text FROM (SELECT 1 AS read_text) AS a", 1),
    "a CTE in a CTE": ("WITH a AS (SELECT 1 AS x), b AS (FROM a) SELECT x FROM b", 1),
    "a text that ends a statement": ("SELECT '; SET threads = 1'", "; SET threads = 1"),
}


@pytest.fixture(scope="module")
def victim(load: Callable[..., Path], hosted: Callable[..., Host], tmp_path_factory: pytest.TempPathFactory) -> tuple[Host, dict[str, str]]:
    """Serve a directory, beside one that is not served and a file; return what the names in attacks stand for."""
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
    """Put the names into an attack."""
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
    with pytest.raises(duckdb.Error, match=r"it calls read_text; ask one SELECT over host_scan and its kin.*sql/README\.md"):
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


def test_without_the_guard_the_settings_still_refuse_files_and_changes(
    victim: tuple[Host, dict[str, str]], hosted: Callable[..., Host], tmp_path: Path
) -> None:
    for script in ("serve.sh", "host.sql", "serve.sql"):
        text = (ROOT / "sql" / script).read_text()
        (tmp_path / script).write_text(text.replace("'host_authorize'", "'quack_nop_authorization'"))
        (tmp_path / script).chmod(0o755)
    unguarded = hosted(victim[0].directory, scripts=tmp_path)
    assert unguarded.ask("SELECT current_setting('quack_authorization_function')") == [("quack_nop_authorization",)]
    for name in ("a file as text", "a file in place of a table", "writing a file", "loading an extension", "attaching a file", "a table",
                 "a setting", "the guard's setting", "external access", "dropping a macro", "the environment"):  # fmt: skip
        with pytest.raises(duckdb.Error):
            unguarded.ask(attack(REFUSED[name], victim[1]))
    assert not Path(victim[1]["out"]).exists()
