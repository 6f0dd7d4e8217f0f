"""Which of the package's two extension files fits a DuckDB, and where the files of DuckDB's own extensions are.

One file of ours is bound to DuckDB 2.0.0 and offers everything; the other is for DuckDB 1.2 and every later version.
"""

import importlib.util
import platform
import re
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
MACROS = HERE / "macros.sql"

_OLDEST = (1, 2)


def is_native(duckdb_version: str) -> bool:
    """Whether the file with pragmas, settings and macros of its own fits this version."""
    return duckdb_version.removeprefix("v") == "2.0.0"


def extension_path(duckdb_version: str | None = None) -> Path:
    """Return the extension file for a DuckDB version such as `"1.5.6"`; without one, for the `duckdb` that is installed.

    Raises RuntimeError where no file fits.
    """
    version = duckdb.__version__ if duckdb_version is None else duckdb_version
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise RuntimeError(
            f"no extension file for {platform.system()} {platform.machine()}: this package holds those for Linux on x86-64; "
            "build Loom on this machine and LOAD its file"
        )
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers is None:
        raise RuntimeError(f"no extension file for DuckDB '{version}': not a version; use one like '2.0.0'")
    if tuple(map(int, numbers.groups())) < _OLDEST:
        raise RuntimeError(f"no extension file for DuckDB {version}: the oldest that fits is 1.2; install duckdb 2.0.0")
    return HERE / "extensions" / ("duckdb-v2.0.0" if is_native(version) else "duckdb-v1") / "loom.duckdb_extension"


def load_statement(extension: str) -> str:
    """Load an extension of DuckDB: from PyPI's package of this version if it is installed, else from DuckDB's own folder."""
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
