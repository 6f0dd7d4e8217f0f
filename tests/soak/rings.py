"""A producer that pushes through shared memory, in a program of its own (`ring.py`), so that its calls wait for no other thread of the soak.

It outlives its daemons. The log has every record once, except those that are counted as lost; a daemon that is killed counts those that it
was storing, which the log may have.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

from load import Failed, Load
from sockets import SOURCE

NAMES = {"ring_waits": "block", "ring_drops": "drop_new"}


class Rings(Load):
    def __init__(self, directory, library, rate):
        super().__init__()
        self.config = "".join(SOURCE.format(name=name, policy=policy) for name, policy in NAMES.items())
        self.command = [sys.executable, Path(__file__).with_name("ring.py"), directory, library, str(rate)]
        self.program, self.counts, self.before = None, {"pushed": 0, "bad": 0}, None

    def sent(self):
        return len(NAMES) * self.counts["pushed"]

    def begin(self):
        self.before = self.counts

    def work(self):
        if self.program is None:
            self.program = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.order(b"g")
        while self.running.is_set():
            time.sleep(0.05)
        self.order(b"r")
        line = self.program.stdout.readline()
        if not line:
            raise Failed(f"the producer with rings ended by itself with {self.program.wait()}")
        self.counts = json.loads(line)
        if self.counts["received"] != sum(self.counts[key] for key in ("stored", "refused", "dropped")):
            raise Failed(f"rings: {self.counts}")

    def order(self, byte):
        self.program.stdin.write(byte)
        self.program.stdin.flush()

    def close(self):
        if self.program:
            self.program.stdin.close()
            self.program.wait(60)

    def check(self, stored, losses, round):
        first, bad = self.before["pushed"], self.counts["bad"] - self.before["bad"]
        pushed = self.counts["pushed"] - first
        for name, policy in NAMES.items():
            lost = losses.pop(name, {})
            killed = lost.get("daemon killed", 0)
            reported = sum(lost.values()) - killed
            columns = "count(*), count(DISTINCT seq), min(seq), max(seq)"
            ((records, different, least, most),) = stored.rows(name, round.since, columns) or [(0, 0, first, first)]
            said = f"{name}, {round.action}: {pushed} records pushed and {bad} bad ones, {records} stored, {reported} lost, {killed} lost or not"
            if not pushed or records != different or least < first or most >= first + pushed:
                raise Failed(f"{said}; {different} different ones, from {least} to {most}")
            if not pushed + bad - killed <= records + reported <= pushed + bad or (killed and not round.ends):
                raise Failed(said)
            if policy == "block" and reported != bad:
                raise Failed(said)
