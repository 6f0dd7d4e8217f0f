"""The built packages, and a small recording to query: what the tests of packages share."""

import os
import shutil
import sys
from pathlib import Path

import versions

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "ingestd/packaging"))
DIST = ROOT / "dist"
# The patterns of this version's packages. Those of others may lie beside them.
DEB, TARBALL, WHEEL = f"loom_{versions.LOOM}_*.deb", f"loom-{versions.LOOM}-*.tar.xz", f"loom_duckdb-{versions.LOOM}-*.whl"
LOAD = ["--source", "request", "--ts", "ts", "--index", "latency_us"]
ROWS = 5000
SLOWEST = f"SELECT count(*) AS n, max(latency_us) AS slowest FROM loom_scan('{{}}', 'request', index := 'latency_us', v_min := {ROWS - 9})"
ANSWER = (10, ROWS)


def missing(*programs: str) -> list[str]:
    """Return the programs that are missing on this machine. CI has all of them."""
    absent = [program for program in programs if shutil.which(program) is None]
    assert not (absent and "CI" in os.environ), f"CI needs {absent}"
    return absent


def the_only(pattern: str) -> Path:
    """Return the only file of `dist` that matches the pattern."""
    [path] = DIST.glob(pattern)
    return path


def write_rows(path: Path) -> None:
    """Write a CSV file with latencies from 1 to ROWS, and a declaration of its fields."""
    field = "field = [{ name = 'latency_us', type = 'i64' }]"
    fields = [f"[[source]]\nname = '{name}'\n{field}\n" for name in ("request", "served")]
    path.with_suffix(".toml").write_text("".join(fields))
    rows = [f"2026-03-01T00:00:{row // 100:02}.{row % 100:02}Z,{row + 1}" for row in range(ROWS)]
    path.write_text("\n".join(["ts,latency_us", *rows]) + "\n")
