"""What one query, and all of them together, may use. Each limit is reported by name when a query meets it."""

QUERIES_AT_ONCE = 4
QUERIES_WAITING_MAX = 32
SQL_BYTES_MAX = 64 * 1024
ROWS_MAX = 20_000
ANSWER_BYTES_MAX = 8 * 1024 * 1024

# Of each process that runs queries, one at a time. Some functions of DuckDB allocate outside its own limit.
DUCKDB_MEMORY = "1GiB"
WORKER_BYTES_MAX = 2 * 1024**3
