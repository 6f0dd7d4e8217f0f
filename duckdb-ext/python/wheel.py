"""The wheel's build hook, which hatchling calls: it adds files that other builds make, and names the platform.

Other parts of the repository make the extension files, the clients, the macros and the explorer's page. If one of them is missing, the
build of the wheel fails.
"""

import os
import sys
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# `make wheel ARCH=aarch64` sets it: files for this processor and every Linux with an old glibc.
ARCH = os.environ.get("ARCH")
BUILD = f"make build ARCH={ARCH}" if ARCH else "make build"
DIST = ROOT / "dist" / (ARCH or "")
PROGRAMS = TARGET / (f"{ARCH}-unknown-linux-gnu/release" if ARCH else "release")

sys.path[:0] = [str(HERE.parent), str(ROOT / "ingestd/packaging")]
import elf  # noqa: E402
import pages  # noqa: E402
import versions  # noqa: E402

# Each part of the wheel, its place in the package, and the command that makes it.
PARTS = [
    *((DIST / folder / "loom.duckdb_extension", f"extensions/{folder}/loom.duckdb_extension", BUILD) for folder in versions.FILES),
    (ROOT / "ingestd/clients/python/loom_client.py", "client.py", "git checkout ingestd/clients"),
    (ROOT / "ingestd/clients/python/loom_ring.py", "ring.py", "git checkout ingestd/clients"),
    (PROGRAMS / "libloom_client.so", "libloom_client.so", BUILD),
    (ROOT / "sql/macros.sql", "macros.sql", "git checkout sql/macros.sql"),
    (HERE / "page/dist", "explore/page", "make wheel"),
]


class Metadata(MetadataHookInterface):
    """Adds what other files of the repository decide."""

    def update(self, metadata: dict) -> None:
        """Add the version, the description and the extras.

        A package index shows the description alone, where links to other files would be dead. The explorer and the server for
        agents run on the newest DuckDB that Loom has a file for, because before 2.0 no version confines the extension to the directories.
        """
        metadata["version"] = versions.LOOM
        metadata["readme"] = {"content-type": "text/markdown", "text": pages.alone((HERE / "README.md").read_text())}
        extras = {name: list(packages) for name, packages in self.config["extras"].items()}
        for name in ("explore", "mcp"):
            extras[name].append(f"duckdb=={versions.NEWEST}")
        metadata["optional-dependencies"] = extras


class Wheel(BuildHookInterface):
    """Adds `PARTS` to a wheel for Linux on one processor and every Python."""

    def initialize(self, version: str, build_data: dict) -> None:
        """Name the platform, and check that every part exists."""
        for source, target, command in PARTS:
            if not source.exists():
                raise FileNotFoundError(f"cannot make the wheel: {source} is missing; run '{command}' first")
            build_data["force_include"][str(source)] = f"loom_duckdb/{target}"
        build_data["tag"] = f"py3-none-{platform([source for source, target, _ in PARTS if target.endswith(('.so', '_extension'))])}"


def platform(binaries: list[Path]) -> str:
    """Return the platform of the binaries: Linux with the glibc of this machine, unless they were built for an old one."""
    if not ARCH:
        machine, _ = elf.machine(binaries[0])
        return f"linux_{machine}"
    elf.require(ARCH, *binaries)
    return "manylinux_{}_{}_{}".format(*elf.GLIBC, ARCH)
