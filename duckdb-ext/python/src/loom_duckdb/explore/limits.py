"""The limits of one query, and of all queries together. An error names the limit that a query reached."""

QUERIES_AT_ONCE = 4
QUERIES_WAITING_MAX = 32
SQL_BYTES_MAX = 64 * 1024
ROWS_MAX = 20_000
ANSWER_BYTES_MAX = 8 * 1024 * 1024

# These are for each process; it runs one query at a time. Some functions of DuckDB allocate outside of DuckDB's limit.
DUCKDB_MEMORY = "1GiB"
WORKER_BYTES_MAX = 2 * 1024**3
