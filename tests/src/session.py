"""One DuckDB connection that answers on standard output: a JSON text of SQL a line in, a JSON answer a line out.

    session.py [-readonly] DATABASE
"""

import json
import sys

import duckdb


def main():
    *options, database = sys.argv[1:]
    connection = duckdb.connect(database, read_only="-readonly" in options, config={"allow_unsigned_extensions": "true"})
    for line in sys.stdin:
        try:
            result = connection.execute(json.loads(line))
            rows = result.fetchall() if result.description else []
            answer = {"rows": [[value if value is None else str(value) for value in row] for row in rows]}
        except Exception as error:  # any error must reach the test
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
