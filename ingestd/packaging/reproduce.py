#!/usr/bin/env python3
"""Builds a release of this commit in two clones at different paths, and compares every file of the two. `make release-check` runs it.

It takes half an hour on two cores, and 5 GB of disk below TMPDIR; twice that with the files for AArch64, which it builds if Zig is
installed here, as for `make release`. LOOM_SIGNING_KEY: the key that signs both; without it, a new one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Build one after the other, because each needs gigabytes."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        key = os.environ.get("LOOM_SIGNING_KEY")
        if not key:
            key = place / "key.pem"
            subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True)
        first, second = (built(place / path, Path(key).resolve()) for path in ("first", "another/folder"))
        differ = sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
    if differ:
        sys.exit("\n".join(["reproduce.py: these files of the two releases differ:", *differ]))
    print(f"{len(first)} files of the two releases are the same")


def built(clone: Path, key: Path) -> dict[str, bytes]:
    """Build a release in a new clone, remove the clone, and return the contents of its files by their paths."""
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    environment = os.environ | {"LOOM_SIGNING_KEY": str(key), "CARGO_TARGET_DIR": str(clone / "target")}
    # This make's settings are not those of the clone's.
    environment = {name: value for name, value in environment.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    zig = [".zig-venv/complete"] if (ROOT / ".zig-venv/complete").exists() else []
    for target in [*zig, "release"]:
        subprocess.run(["make", "--no-print-directory", target], cwd=clone, env=environment, check=True)
    files = {str(path.relative_to(clone / "dist")): path.read_bytes() for path in (clone / "dist").rglob("*") if path.is_file()}
    shutil.rmtree(clone)
    return files


if __name__ == "__main__":
    main()
