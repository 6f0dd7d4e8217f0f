"""What the log has: records that a command exports, as tables of DuckDB."""

import subprocess
import time
from collections import defaultdict

import duckdb

from load import Failed

EXPORTS_MAX = 10


def quoted(names):
    """Names as columns of SQL."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


class Stored:
    def __init__(self, ingestd, directory, place):
        self.ingestd, self.directory, self.place = ingestd, directory, place

    def export(self, source, since, bound="--from"):
        """The records of a source since a time, or before it, as a table; None if there is none."""
        out = self.place / f"{source.replace('/', '_')}.parquet"
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since)) + f".{int(since % 1 * 1e9):09d}Z"
        command = [self.ingestd, "export", self.directory, "--source", source, bound, stamp, "--out", out]
        # Retention may remove records while they are exported, and then the next export begins behind them.
        for _ in range(EXPORTS_MAX):
            done = subprocess.run(command, capture_output=True, text=True)
            if "retention removed" not in done.stderr:
                break
        if "unknown source" in done.stderr or done.stdout == "rows=0\n":
            return None
        if done.returncode != 0:
            raise Failed(f"export of {source}: {done.stderr}")
        return f"read_parquet('{out}')"

    def rows(self, source, since, columns, more=""):
        """Columns of the records of a source since a time."""
        table = self.export(source, since)
        return [] if table is None else duckdb.connect().execute(f"SELECT {columns} FROM {table} {more}").fetchall()

    def losses(self, since):
        """The number of records that were lost, by source and reason."""
        found = defaultdict(dict)
        rows = self.rows("loom_losses", since, "source_name, reason, sum(records)::BIGINT, count(*) - count(records)", "GROUP BY ALL")
        for source, reason, records, unknown in rows:
            if unknown:
                raise Failed(f"a kill left losses whose number is not known: {source}, {reason}")
            found[source][reason] = records
        return found
