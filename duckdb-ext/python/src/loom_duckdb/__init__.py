"""Loom in DuckDB: the extension files, and how to load them.

    import loom_duckdb

    db = loom_duckdb.connect("demo.loom")
    db.sql("FROM demo.redis_request LIMIT 10")

`python -m loom_duckdb.explore DIR` shows a directory live in a browser.
"""

from loom_duckdb.connection import connect, init_sql, load, lock_sql
from loom_duckdb.files import extension_path

__all__ = ["connect", "extension_path", "init_sql", "load", "lock_sql"]
