"""Loom through ADBC: Arrow tables from the driver in DuckDB's Python package. `LOOM_DIR=demo.loom python adbc_live.py`."""

import os

import _duckdb
import adbc_driver_manager.dbapi
import loom_duckdb

DIRECTORY = os.environ["LOOM_DIR"]

options = {"allow_unsigned_extensions": "true"}
with (
    adbc_driver_manager.dbapi.connect(_duckdb.__file__, entrypoint="duckdb_adbc_init", db_kwargs=options, autocommit=True) as db,
    db.cursor() as cursor,
):
    for statement in (loom_duckdb.init_sql(DIRECTORY, name="live") + loom_duckdb.lock_sql(DIRECTORY)).splitlines():
        cursor.execute(statement)
    cursor.execute("SELECT bucket, count, p99 FROM live.redis_request__latency WHERE bucket >= now() - INTERVAL 1 MINUTE ORDER BY bucket")
    print(cursor.fetch_arrow_table().num_rows)
