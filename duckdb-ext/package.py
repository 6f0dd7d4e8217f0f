#!/usr/bin/env python3
"""Writes the loadable files from the shared library: one for each release of DuckDB 2 in versions.toml, and one for DuckDB 1.

Each file for DuckDB 2 also has the positions of the functions of the C API in that release; see src/v2/host.rs.

DuckDB reads the last 512 bytes of an extension: eight fields of 32 bytes, padded with zeros, then 256 bytes of signature. The fields are
three empty ones, the ABI, the version of the extension, the DuckDB or C API version that it was built for, the platform, and the number of
the footer's layout.

    package.py target/release/libloom_duckdb.so dist
"""

import sys
from pathlib import Path

from versions import BOUND, LINK, LOOM, NEWEST, RELEASES, TABLE, V1, folder

FIELD_BYTES = 32
SIGNATURE_BYTES = 256
LAYOUT = "4"

PLACE_BYTES = 128

# The machine's number in the head of an ELF file, and DuckDB's name of the platform.
PLATFORMS = {62: "linux_amd64", 183: "linux_arm64"}


def footer(abi: str, extension_version: str, api_version: str, target: str) -> bytes:
    fields = ["", "", "", abi, extension_version, api_version, target, LAYOUT]
    packed = b""
    for field in fields:
        raw = field.encode("ascii")
        if len(raw) > FIELD_BYTES:
            raise SystemExit(f"package.py: the footer field {field!r} is longer than {FIELD_BYTES} bytes")
        packed += raw.ljust(FIELD_BYTES, b"\0")
    return packed + bytes(SIGNATURE_BYTES)


def place(release: str) -> bytes:
    text = f"loom: functions of {folder(release)} {TABLE['v2'][release]}".encode("ascii")
    if len(text) >= PLACE_BYTES:
        raise SystemExit(f"package.py: the line of DuckDB {release} in versions.toml is too long")
    return text.ljust(PLACE_BYTES, b"\0")


def placed(library: bytes, release: str) -> bytes:
    """Return the library with the function positions of a release."""
    if library.count(place(BOUND)) != 1:
        raise SystemExit(f"package.py: the library is not compiled for DuckDB {BOUND}, the first release in versions.toml")
    return library.replace(place(BOUND), place(release))


def platform_of(library: bytes) -> str:
    """Return the platform that the library is compiled for, which may be another than this machine's."""
    machine = int.from_bytes(library[18:20], "little")
    if library[:4] != b"\x7fELF" or machine not in PLATFORMS:
        raise SystemExit("package.py: the library is not one for Linux on x86-64 or AArch64")
    return PLATFORMS[machine]


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit("usage: package.py LIBRARY DIST")
    library = Path(sys.argv[1]).read_bytes()
    target = platform_of(library)
    # Each entry has a directory under dist, library, ABI and version. C API v2 requires one release, v1 a minimum.
    files = [(folder(release), placed(library, release), "C_STRUCT_UNSTABLE", f"v{release}") for release in RELEASES]
    files.append((V1, library, "C_STRUCT", f"v{TABLE['v1']['oldest']}"))
    for directory, contents, abi, api_version in files:
        extension = Path(sys.argv[2]) / directory / "loom.duckdb_extension"
        extension.parent.mkdir(parents=True, exist_ok=True)
        # A process may have mapped the old file, so it is replaced and never written.
        fresh = extension.with_suffix(".new")
        fresh.write_bytes(contents + footer(abi, f"v{LOOM}", api_version, target))
        fresh.replace(extension)
        print(extension)
    link = Path(sys.argv[2]) / LINK
    link.unlink(missing_ok=True)
    link.symlink_to(folder(NEWEST))


if __name__ == "__main__":
    main()
