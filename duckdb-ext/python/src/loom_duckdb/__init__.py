"""Loom in DuckDB: the extension files, and how to load them.

    import loom_duckdb

    db = loom_duckdb.connect("demo.loom")
    db.sql("FROM demo.redis_request LIMIT 10")

`python -m loom_duckdb.explore DIR` shows a directory live in a browser; `Fleet` queries many hosts.
"""

from typing import Any

from loom_duckdb.connection import connect, init_sql, load, lock_sql
from loom_duckdb.files import extension_path

__all__ = ["Answer", "Fleet", "FleetError", "connect", "extension_path", "init_sql", "load", "lock_sql"]


def __getattr__(name: str) -> Any:
    """Import the fleet when it is first used, because it needs pyarrow and the rest of the package does not."""
    if name not in ("Answer", "Fleet", "FleetError"):
        raise AttributeError(f"module 'loom_duckdb' has no attribute {name!r}")
    try:
        from loom_duckdb import fleet
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs the package {error.name}; run pip install 'loom_duckdb[fleet]'", name=error.name) from error
    return getattr(fleet, name)
