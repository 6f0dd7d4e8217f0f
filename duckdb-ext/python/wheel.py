"""The wheel's build hook: puts in what other builds make, and names the platform.

hatchling calls it. The extension files, the clients, the macros and the explorer's page are made elsewhere in the repository; a wheel
without one of them is never made.
"""

import os
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

sys.path[:0] = [str(HERE.parent), str(ROOT / "ingestd/packaging")]
import pages  # noqa: E402
import versions  # noqa: E402

# What the wheel takes, where it goes in the package, and what makes it.
PARTS = [
    *(
        (ROOT / "dist" / folder / "loom.duckdb_extension", f"extensions/{folder}/loom.duckdb_extension", "make build")
        for folder in versions.FILES
    ),
    (ROOT / "ingestd/clients/python/loom_client.py", "client.py", "git checkout ingestd/clients"),
    (ROOT / "ingestd/clients/python/loom_ring.py", "ring.py", "git checkout ingestd/clients"),
    (TARGET / "release/libloom_client.so", "libloom_client.so", "make build"),
    (ROOT / "sql/macros.sql", "macros.sql", "git checkout sql/macros.sql"),
    (HERE / "page/dist", "explore/page", "make wheel"),
]


class Metadata(MetadataHookInterface):
    """Adds what other files of the repository decide."""

    def update(self, metadata: dict) -> None:
        """Add the description and the extras.

        An index of packages shows the description by itself: links to other files would be dead. The explorer runs on the newest DuckDB
        that Loom has a file for: before 2.0, no version confines the extension to the directories.
        """
        metadata["readme"] = {"content-type": "text/markdown", "text": pages.alone((HERE / "README.md").read_text())}
        extras = {name: list(packages) for name, packages in self.config["extras"].items()}
        extras["explore"].append(f"duckdb=={versions.NEWEST}")
        metadata["optional-dependencies"] = extras


class Wheel(BuildHookInterface):
    """Adds `PARTS` to a wheel that is for Linux on x86-64 and for every Python."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Name the platform, and check that every part exists."""
        build_data["tag"] = "py3-none-linux_x86_64"
        for source, target, command in PARTS:
            if not source.exists():
                raise FileNotFoundError(f"cannot make the wheel: {source} is missing; run '{command}' first")
            build_data["force_include"][str(source)] = f"loom_duckdb/{target}"
