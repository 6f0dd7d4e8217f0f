"""An archiver of the sender's logs, which runs all the time and is killed at random: its files have the records that the log has, once."""

import random
import subprocess
import threading

import duckdb

from load import Failed

SOURCE = "logs"
FILES = f"source={SOURCE}/*/*/*.parquet"


class Archiver(threading.Thread):
    def __init__(self, ingestd, directory, place, seed):
        super().__init__(daemon=True)
        self.to, self.random = place / "archive", random.Random(seed)
        self.command = [ingestd, "archive", directory, "--to", self.to, "--source", SOURCE]
        self.wanted, self.free, self.checked = threading.Event(), threading.Event(), threading.Event()
        self.over, self.error, self.kills, self.compared = False, None, 0, 0

    def run(self):
        while not self.over and not self.error:
            program = subprocess.Popen([*self.command, "--every", "1s"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.wanted.wait(self.random.uniform(0.1, 8))
            if program.poll() is not None:
                self.error = f"the archiver ended by itself: {program.stderr.read()[-600:]}"
            program.kill()
            program.wait()
            program.stderr.close()
            self.kills += 1
            # An archive has one archiver at a time, and a check has its own.
            if self.wanted.is_set():
                self.free.set()
                self.checked.wait()
                self.checked.clear()

    def check(self, stored, losses, round):
        """Archives everything, and compares it with the log, which has all of this round."""
        self.wanted.set()
        if not self.free.wait(60):
            raise Failed(f"the archiver does not make room within a minute: {self.error}")
        try:
            self.compare(subprocess.run(self.command, capture_output=True, text=True), stored, round)
        finally:
            self.free.clear()
            self.wanted.clear()
            self.checked.set()

    def compare(self, done, stored, round):
        if done.returncode != 0:
            raise Failed(f"archive: {done.returncode}: {done.stderr}")
        in_archive = self.seqs(round.since)
        in_log = [seq for (seq,) in stored.rows(SOURCE, round.since, "seq", "ORDER BY seq")]
        if in_archive != in_log:
            raise Failed(f"archive, {round.action}: {len(in_archive)} records of this round, and {len(in_log)} in the log")
        self.compared += len(in_log)

    def seqs(self, since):
        """The numbers of the records since a time, from the files that were written since."""
        files = [str(file) for file in self.to.glob(FILES) if file.stat().st_mtime >= since]
        query = f"SELECT seq FROM read_parquet({files}) WHERE ts_ns >= {int(since * 1e9)} ORDER BY seq"
        return [seq for (seq,) in duckdb.connect().execute(query).fetchall()] if files else []

    def skip(self):
        """Ends a round that cannot be compared."""

    def check_end(self):
        """Checks that the whole archive has no record twice."""
        records, different = duckdb.connect().execute(f"SELECT count(*), count(DISTINCT seq) FROM '{self.to}/{FILES}'").fetchone()
        if records != different or records < self.compared:
            raise Failed(f"archive: {records} records, {different} different ones, {self.compared} were compared")
