"""Finds the extension file that fits a DuckDB, and the files of DuckDB's own extensions.

A file for a release of DuckDB 2 loads in that release only, and offers everything. One more file is for DuckDB 1.3 and every later version.
It also loads in the command line of 1.2, whose Python package has another platform.
"""

import functools
import importlib.util
import platform
import re
import warnings
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
MACROS = HERE / "macros.sql"

_OLDEST = (1, 3)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


_FILES = {folder.name.removeprefix("duckdb-v"): folder for folder in HERE.glob("extensions/duckdb-v2.*")}
NATIVE = sorted(_FILES, key=_numbers)
"""The releases of DuckDB 2 with a file, the newest last."""


@functools.cache
def _machine() -> str:
    """Return the processor of the extension files, from the number in their heads."""
    with (HERE / "extensions/duckdb-v1/loom.duckdb_extension").open("rb") as file:
        head = file.read(20)
    return {62: "x86_64", 183: "aarch64"}[int.from_bytes(head[18:], "little")]


def is_native(duckdb_version: str) -> bool:
    """Whether a file with pragmas, settings and macros of its own fits this version."""
    return duckdb_version.removeprefix("v") in _FILES


def extension_path(duckdb_version: str | None = None) -> Path:
    """Return the extension file for a DuckDB version such as `"1.5.6"`; without one, for the `duckdb` that is installed.

    Raises RuntimeError if no file fits.
    """
    version = duckdb.__version__ if duckdb_version is None else duckdb_version
    machine = _machine()
    if (platform.system(), platform.machine()) != ("Linux", machine):
        raise RuntimeError(
            f"no extension file for {platform.system()} {platform.machine()}: this package holds those for Linux on {machine}; "
            "build Loom on this machine and LOAD its file"
        )
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers is None:
        raise RuntimeError(f"no extension file for DuckDB '{version}': not a version; use one like '{NATIVE[-1]}'")
    if tuple(map(int, numbers.groups())) < _OLDEST:
        raise RuntimeError(f"no extension file for DuckDB {version}: the oldest that fits is 1.3; install duckdb {NATIVE[-1]}")
    folder = _FILES.get(version.removeprefix("v"), HERE / "extensions/duckdb-v1")
    return folder / "loom.duckdb_extension"


@functools.cache
def warn_of_slow_where(duckdb_version: str) -> None:
    """Warn, once for each process and version, that WHERE prunes no chunk if only the file for all versions fits."""
    if not is_native(duckdb_version):
        message = (
            f"in DuckDB {duckdb_version.removeprefix('v')} WHERE skips no chunk, so queries read far more: "
            f"use named parameters such as t_from, or install duckdb=={NATIVE[-1]}"
        )
        warnings.warn(message, stacklevel=4)


def load_statement(extension: str) -> str:
    """Write the LOAD of an extension of DuckDB: from PyPI's package of this version if it is installed, else from DuckDB's own folder."""
    file = extension_file(extension)
    if file is None:
        return f"LOAD {extension}"
    path = str(file).replace("'", "''")
    return f"LOAD '{path}'"


def extension_file(extension: str) -> Path | None:
    """Return the file of an extension in PyPI's package of this version; None if it is not installed."""
    package = importlib.util.find_spec(f"duckdb_extension_{extension}")
    if package is None or package.origin is None:
        return None
    files = sorted(Path(package.origin).parent.glob(f"extensions/v{duckdb.__version__}/{extension}.duckdb_extension"))
    return files[0] if files else None
