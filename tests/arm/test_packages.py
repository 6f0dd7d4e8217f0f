"""The wheel for AArch64 and the signed repository, under QEMU, on what the packaged daemon wrote.

`run packages` sets WHEEL, the folder into which pip installed the wheel, and what test_arm.py needs.
"""

import os
from pathlib import Path

import pytest

from test_arm import DUCKDBS, PREFIX, PYTHON, ROOT, ROWS, load, on_arm, run

PAGE = 4096
ANSWER = f"[({ROWS}, {ROWS * (ROWS - 1) // 2})]\n"
ATTACHED = """import sys, loom_duckdb
print(loom_duckdb.connect(sys.argv[1]).execute("SELECT count(*), sum(latency_us) FROM arm.request").fetchall())"""
INSTALLED = """import sys, duckdb
db = duckdb.connect()
db.execute("SET allow_extension_repositories = 'allowed'")
db.execute(f"CREATE EXTENSION REPOSITORY loom WITH PREFIX '{sys.argv[2]}'")
db.execute("INSTALL loom FROM loom; LOAD loom FROM loom")
print(db.execute(f"SELECT count(*), sum(latency_us) FROM loom_scan('{sys.argv[1]}', 'request')").fetchall())"""


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    directory = tmp_path / "arm.loom"
    load(PAGE, directory)
    return directory


@pytest.mark.parametrize("line", DUCKDBS)
def test_the_wheel_loads_the_file_that_fits_and_attaches_a_directory(recorded: Path, line: str) -> None:
    python = on_arm(PAGE, PYTHON, "-c", ATTACHED, recorded)
    assert run(*python, PYTHONPATH=f"{os.environ['WHEEL']}:{ROOT}/duckdb-{line}") == ANSWER


def test_duckdb_2_installs_the_extension_from_the_signed_repository(recorded: Path, tmp_path: Path) -> None:
    python = on_arm(PAGE, PYTHON, "-c", INSTALLED, recorded, PREFIX / "lib/loom/repository")
    assert run(*python, PYTHONPATH=f"{ROOT}/duckdb-v2", HOME=str(tmp_path)) == ANSWER
