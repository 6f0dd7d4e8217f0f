"""The wheel's build hook: puts in what other builds make, and names the platform.

hatchling calls it. The extension files, the macros and the explorer's page are made elsewhere in the repository; a wheel without one of
them is never made.
"""

from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# What the wheel takes, where it goes in the package, and what makes it.
PARTS = [
    (ROOT / "dist/duckdb-v2.0.0/loom.duckdb_extension", "extensions/duckdb-v2.0.0/loom.duckdb_extension", "make build"),
    (ROOT / "dist/duckdb-v1/loom.duckdb_extension", "extensions/duckdb-v1/loom.duckdb_extension", "make build"),
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
