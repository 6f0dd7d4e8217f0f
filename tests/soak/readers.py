"""Readers of the directory: commands of ingestd, queries of DuckDB in new processes, and in processes that live long."""

import random
import signal
import subprocess
import threading
import time

from load import Failed

# Errors that a reader may get: retention removed what it reads, or no daemon runs.
GONE = ("evicted", "retention removed", "its writer runs", "no daemon", "unknown source")


class Reader(threading.Thread):
    """Runs commands that read, over and over, and reports one that fails."""

    def __init__(self, commands):
        super().__init__(daemon=True)
        self.commands, self.over, self.error, self.runs = commands, False, None, 0

    def run(self):
        while not self.over:
            for command, allowed in self.commands:
                done = subprocess.run(command, capture_output=True, text=True)
                self.runs += 1
                text = done.stderr.lower()
                if done.returncode != 0 and not any(word in text for word in allowed):
                    self.error = f"{command[:4]}: {done.returncode}: {done.stderr[-600:]}"
            time.sleep(0.1)


# Records and summaries must agree. Arguments: the extension, the directory, and the texts of errors that are allowed.
QUERIES = """
import duckdb, sys
extension, directory = sys.argv[1:3]
gone = sys.argv[3:]
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
connection.execute(f"LOAD '{extension}'")
def one(sql):
    return connection.execute(sql).fetchone()
def compare(source, field, index):
    (at,) = one(f"SELECT position FROM loom_snapshot('{directory}')")
    count = f"SELECT count(*), coalesce(sum({field}), 0) FROM loom_scan('{directory}', '{source}', at := {at})"
    before = one(count)
    summed = one(f"SELECT coalesce(max(count), 0), coalesce(max(sum), 0) FROM loom_aggregate('{directory}', '{source}', '{index}', at := {at})")
    # Where nothing was evicted meanwhile, records and summaries agree.
    if before == one(count):
        if before != summed:
            sys.exit(f'{source}: {before} in the records, {summed} in the summaries')
        print(source, flush=True)
while True:
    for source, field, index in SOURCES:
        try:
            compare(source, field, index)
        except duckdb.Error as error:
            if not any(word in str(error).lower() for word in gone):
                raise
"""


class Unlucky(threading.Thread):
    """A process that queries without end, until it is stopped in the middle for a while, or killed and replaced by the next one."""

    def __init__(self, command, compared, random):
        super().__init__(daemon=True)
        self.command, self.compared, self.random = command, compared, random
        self.over, self.error, self.stops, self.kills = False, None, 0, 0

    def run(self):
        while not self.over:
            process = subprocess.Popen(self.command, stdout=self.compared, stderr=subprocess.PIPE, text=True)
            ends = False
            while not ends and not self.over:
                time.sleep(self.random.uniform(0.3, 3))
                if process.poll() is not None:
                    self.error = f"a reader ended by itself: {process.stderr.read()[-600:]}"
                    return
                process.send_signal(signal.SIGSTOP)
                time.sleep(self.random.uniform(0.1, 2))
                process.send_signal(signal.SIGCONT)
                self.stops += 1
                ends = self.random.random() < 0.3
            process.kill()
            process.wait()
            process.stderr.close()
            self.kills += 1


def commands(ingestd, directory, place):
    """Commands that read, each with the errors that are allowed."""
    return [
        ([ingestd, "status", directory], (*GONE, "connection", "stopped")),
        ([ingestd, "export", directory, "--source", "drops", "--out", place / "r.parquet"], GONE),
        ([ingestd, "check", directory], GONE),
    ]


class Database:
    """Readers with one DuckDB: a query in new processes, and two processes that live long and compare sources by (name, field, index)."""

    def __init__(self, python, extension, directory, place, sources, seed):
        script = "import duckdb; duckdb.connect(config={{'allow_unsigned_extensions': 'true'}}).execute({!r}).fetchall()"
        query = (f"LOAD '{extension}'; SELECT count(*), max(seq) FROM loom_scan('{directory}', 'waits'); "
                 f"FROM loom_aggregate('{directory}', 'drops', 'seq', quantiles := [0.5, 0.999])")
        version = subprocess.run([python, "-c", "import duckdb; print(duckdb.__version__)"], check=True, capture_output=True, text=True)
        self.version, self.sources = version.stdout.strip(), sources
        self.compared = place / f"compared-{self.version}"
        live = [python, "-c", QUERIES.replace("SOURCES", repr(sources)), extension, str(directory), *GONE]
        self.readers = [Reader([([python, "-c", script.format(query)], GONE)])]
        self.readers += [Unlucky(live, self.compared.open("ab"), random.Random(seed + n)) for n in range(2)]

    def comparisons(self):
        """The number of comparisons of each source. Each must have been compared."""
        done = self.compared.read_text().split()
        found = {source: done.count(source) for source, _, _ in self.sources}
        if 0 in found.values():
            raise Failed(f"DuckDB {self.version} could not compare every source: {found}")
        return found
