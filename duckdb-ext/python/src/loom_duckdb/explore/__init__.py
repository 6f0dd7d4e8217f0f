"""The explorer: one page that shows Loom directories live, served on loopback by one locked-down DuckDB.

`python -m loom_duckdb.explore DIR` starts it. The page writes the SQL and shows it; `database` refuses what is not one SELECT about the
directories that were given, and bounds its time, rows and memory; `server` admits only the browser that was given the address.
"""
