"""The guard of a served host in the installed DuckDB: it decides on each question of the list as a served host does."""

import importlib.util
from pathlib import Path
from types import ModuleType

import duckdb
import pytest

import loom_duckdb

ROOT = Path(__file__).resolve().parents[3]


def attacks() -> ModuleType:
    """Load the list, which is beside the tests of served hosts."""
    spec = importlib.util.spec_from_file_location("attacks", ROOT / "tests/fleet/attacks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def guard(shop: Path, monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB with the macros of a host."""
    monkeypatch.setenv("LOOM_DIR", str(shop))
    db = loom_duckdb.connect()
    db.execute((ROOT / "sql/host.sql").read_text(encoding="utf-8"))
    return db


def judged(guard: duckdb.DuckDBPyConnection, question: str) -> str | None:
    """Return the statement that would run instead of the question; None if the guard refuses it without a reason."""
    try:
        return guard.execute("SELECT host_authorize('session', ?)", [question]).fetchall()[0][0]
    except duckdb.Error:
        # A guard that fails refuses.
        return None


def test_attacks_are_refused(guard: duckdb.DuckDBPyConnection) -> None:
    # 2.0 gives a type that does not exist a node like every other, and refuses it when it binds the question.
    passed = {name for name, question in attacks().REFUSED.items() if judged(guard, question) == question}
    assert passed <= {"a type that the catalog has"}


def test_a_function_of_the_catalog_is_allowed_by_its_name_and_its_kind(guard: duckdb.DuckDBPyConnection) -> None:
    catalog = guard.execute("SELECT DISTINCT lower(function_name), function_type FROM duckdb_functions()").fetchall()
    assert ("histogram", "table_macro") in catalog
    assert ("histogram", "aggregate") in catalog
    answered = []
    for name, kind in catalog:
        quoted = '"' + name.replace('"', '""') + '"'
        question = f"FROM {quoted}()" if kind in attacks().IN_FROM else f"SELECT {quoted}()"
        if kind != "pragma" and judged(guard, question) == question:
            answered.append((name, kind))
    assert attacks().strange(answered) == []


def test_harmless_questions_and_those_of_a_fleet_are_answered(guard: duckdb.DuckDBPyConnection) -> None:
    questions = [question for question, _ in attacks().ANSWERED.values()]
    questions.append("SELECT * FROM host_scan('request', around := ['2026-03-01 00:00:01+00'::TIMESTAMPTZ], width := INTERVAL 1 SECOND)")
    questions.append(
        "SELECT count(*), id::DECIMAL(20, 0) AS id FROM host_scan('request', index := 'latency_us', v_min := 990) GROUP BY ALL"
    )
    for question in questions:
        assert judged(guard, question) == question
        guard.execute(question)
