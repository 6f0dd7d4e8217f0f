"""The wheel's build hook: puts in what other builds make, and names the platform.

hatchling calls it. The extension files, the clients, the macros and the explorer's page are made elsewhere in the repository; a wheel
without one of them is never made.
"""

import os
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

# What the wheel takes, where it goes in the package, and what makes it.
PARTS = [
    (ROOT / "dist/duckdb-v2.0.0/loom.duckdb_extension", "extensions/duckdb-v2.0.0/loom.duckdb_extension", "make build"),
    (ROOT / "dist/duckdb-v1/loom.duckdb_extension", "extensions/duckdb-v1/loom.duckdb_extension", "make build"),
    (ROOT / "ingestd/clients/python/loom_client.py", "client.py", "git checkout ingestd/clients"),
    (ROOT / "ingestd/clients/python/loom_ring.py", "ring.py", "git checkout ingestd/clients"),
    (TARGET / "release/libloom_client.so", "libloom_client.so", "make build"),
    (ROOT / "sql/macros.sql", "macros.sql", "git checkout sql/macros.sql"),
    (HERE / "page/dist", "explore/page", "make wheel"),
]


class Wheel(BuildHookInterface):
    """Adds `PARTS` to a wheel that is for Linux on x86-64 and for every Python."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Name the platform, and check that every part exists."""
        build_data["tag"] = "py3-none-linux_x86_64"
        for source, target, command in PARTS:
            if not source.exists():
                raise FileNotFoundError(f"cannot make the wheel: {source} is missing; run '{command}' first")
            build_data["force_include"][str(source)] = f"loom_duckdb/{target}"
