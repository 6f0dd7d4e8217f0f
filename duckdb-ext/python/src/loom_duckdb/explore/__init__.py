"""The explorer: one page that shows Loom directories live, served on loopback by one locked-down DuckDB.

`python -m loom_duckdb.explore DIR` starts it. The page writes the SQL and shows it. `database` refuses everything except one SELECT about
the given directories, and bounds its time, rows and memory. `server` admits only a browser that has the address.
"""
