#!/usr/bin/env python3
"""Writes the two loadable files from the one shared library.

DuckDB reads the last 512 bytes of an extension: eight fields of 32 bytes, zero padded, then 256 bytes of
signature. The fields stand in reverse order of importance: three empty ones, the ABI, the version of the extension,
the DuckDB or C API version that it was built for, the platform, and the number of the footer's own layout.

    package.py target/release/libloom_duckdb.so dist [extension version]
"""

import platform
import sys
from pathlib import Path

FIELD_BYTES = 32
SIGNATURE_BYTES = 256
LAYOUT = "4"

# directory under dist, ABI, version: the unstable C API is bound to one release, the stable one to a minimum.
FILES = [
    ("duckdb-v2.0.0", "C_STRUCT_UNSTABLE", "v2.0.0"),
    ("duckdb-v1", "C_STRUCT", "v1.2.0"),
]

PLATFORMS = {"x86_64": "linux_amd64", "amd64": "linux_amd64", "aarch64": "linux_arm64", "arm64": "linux_arm64"}


def footer(abi: str, extension_version: str, api_version: str, target: str) -> bytes:
    fields = ["", "", "", abi, extension_version, api_version, target, LAYOUT]
    packed = b""
    for field in fields:
        raw = field.encode("ascii")
        if len(raw) > FIELD_BYTES:
            raise SystemExit(f"package.py: the footer field {field!r} is longer than {FIELD_BYTES} bytes")
        packed += raw.ljust(FIELD_BYTES, b"\0")
    return packed + bytes(SIGNATURE_BYTES)


def main() -> None:
    if len(sys.argv) not in (3, 4):
        raise SystemExit("usage: package.py LIBRARY DIST [VERSION]")
    machine = platform.machine().lower()
    if platform.system() != "Linux" or machine not in PLATFORMS:
        raise SystemExit(f"package.py: Loom is built for Linux on x86-64 and AArch64, not {platform.system()} {machine}")
    library = Path(sys.argv[1]).read_bytes()
    version = sys.argv[3] if len(sys.argv) == 4 else "v0.1.0"
    for directory, abi, api_version in FILES:
        target = Path(sys.argv[2]) / directory / "loom.duckdb_extension"
        target.parent.mkdir(parents=True, exist_ok=True)
        # A process may have the old file mapped: replace it, never write into it.
        fresh = target.with_suffix(".new")
        fresh.write_bytes(library + footer(abi, version, api_version, PLATFORMS[machine]))
        fresh.replace(target)
        print(target)


if __name__ == "__main__":
    main()
