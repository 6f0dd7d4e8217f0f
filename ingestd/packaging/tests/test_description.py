"""Tests the description for DuckDB's repository of community extensions by the rules of its schema, and runs its example."""

import os
import re
import subprocess
import sys
from pathlib import Path

import duckdb
import versions
import yaml
from dist import DIST, ROOT

SCRIPT = ROOT / "duckdb-ext/description.py"
TEXT = r"(?s).+"
# The keys, and the form of each value.
RULES = {
    "extension": {
        "name": r"[a-z][a-z0-9_]*",
        "description": r"[^\n]+",
        "version": r"\d+\.\d+\.\d+",
        "language": TEXT,
        "build": "cmake|CMake|cargo",
        "license": TEXT,
        "excluded_platforms": r"[a-z0-9_]+(;[a-z0-9_]+)*",
        "requires_toolchains": r"[a-z0-9_]+(;[a-z0-9_]+)*",
    },
    "repo": {"github": r"[a-zA-Z0-9_-]+/[a-zA-Z0-9_.-]+", "ref": "[a-f0-9]{40}"},
    "docs": {"hello_world": TEXT, "extended_description": TEXT},
}


def described() -> dict:
    printed = subprocess.run([sys.executable, SCRIPT, "example/loom"], check=True, capture_output=True, text=True).stdout
    return yaml.safe_load(printed)


def test_the_description_follows_the_rules_of_the_community() -> None:
    description = described()
    assert all(set(maintainer) <= {"name", "github"} for maintainer in description["extension"].pop("maintainers"))
    assert {part: set(keys) for part, keys in description.items()} == {part: set(keys) for part, keys in RULES.items()}
    wrong = [(part, key) for part, keys in RULES.items() for key, form in keys.items() if not re.fullmatch(form, description[part][key])]
    assert wrong == []


def test_the_example_of_the_description_runs(tmp_path: Path) -> None:
    # On a loaded machine the demo complains that it had no time for its slow requests, which the example does not need.
    subprocess.run([os.environ["INGESTD"], "demo", tmp_path / "demo.loom", "--seconds", "2"], capture_output=True)
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        db.execute(f"LOAD '{DIST / versions.LINK / 'loom.duckdb_extension'}'")
        example = described()["docs"]["hello_world"].replace("demo.loom'", f"{tmp_path}/demo.loom'")
        [indexes, aggregate, slow] = [db.execute(statement.query).fetchall() for statement in db.extract_statements(example)]
    assert any("latency" in row for row in indexes)
    assert aggregate[0][0] > 0
    assert all(latency >= 350_000 for *_, latency in slow)


def test_a_wrong_place_is_refused() -> None:
    refused = subprocess.run([sys.executable, SCRIPT, "loom"], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "OWNER/REPOSITORY" in refused.stderr
