"""Superset's settings for Loom: each DuckDB connection of this Superset shows one Loom directory, and nothing else.

Superset reads this file where SUPERSET_CONFIG_PATH names it; LOOM_DIR names the directory. Each query gets a database in memory of its
own, whose views are those of `loom_attach`, in the catalog `live`. Its settings are locked before the first query.
"""

import os
import time

import duckdb_engine
import loom_duckdb

if not os.path.isdir(os.environ.get("LOOM_DIR", "")):
    raise SystemExit("superset_config: LOOM_DIR is not a directory; set it to the Loom directory that the charts show")
DIRECTORY = os.path.abspath(os.environ["LOOM_DIR"])

# Superset computes 'last 5 minutes' in the zone of its process, and takes the times of an answer as UTC. In another zone it would query
# the wrong hours, and its charts would be empty.
os.environ["TZ"] = "UTC"
time.tzset()
DEFAULT_RELATIVE_START_TIME = "now"
DEFAULT_RELATIVE_END_TIME = "now"

# Widths of buckets that Superset's list for DuckDB does not have.
TIME_GRAIN_ADDON_EXPRESSIONS = {
    "duckdb": {
        "PT5S": "time_bucket(INTERVAL 5 SECOND, {col})",
        "PT30S": "time_bucket(INTERVAL 30 SECOND, {col})",
        "PT5M": "time_bucket(INTERVAL 5 MINUTE, {col})",
        "PT10M": "time_bucket(INTERVAL 10 MINUTE, {col})",
        "PT15M": "time_bucket(INTERVAL 15 MINUTE, {col})",
        "PT30M": "time_bucket(INTERVAL 30 MINUTE, {col})",
    }
}
DATA_CACHE_CONFIG = {"CACHE_TYPE": "NullCache"}

# The pages load nothing from other hosts.
TALISMAN_CONFIG = {
    "content_security_policy": {
        "base-uri": ["'self'"],
        "default-src": ["'self'"],
        "img-src": ["'self'", "blob:", "data:"],
        "worker-src": ["'self'", "blob:"],
        "object-src": "'none'",
        "style-src": ["'self'", "'unsafe-inline'"],
        "script-src": ["'self'", "'strict-dynamic'"],
    },
    "content_security_policy_nonce_in": ["script-src"],
    "force_https": False,
    "session_cookie_secure": False,
}


def connect():
    """Open a database with the views of the directory, which can read no other file."""
    connection = loom_duckdb.connect(DIRECTORY, name="live", threads=2, memory_limit="1GB")
    connection.execute("USE live; SET TimeZone = 'UTC'; SET python_enable_replacements = false")
    connection.execute(loom_duckdb.lock_sql(DIRECTORY))
    return duckdb_engine.ConnectionWrapper(connection)


def DB_CONNECTION_MUTATOR(uri, params, username, security_manager, source):
    """Give every DuckDB engine the connection above, whatever its address says."""
    if uri.get_backend_name() == "duckdb":
        params = {**params, "creator": connect}
    return uri, params
