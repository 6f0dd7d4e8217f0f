"""A rule that a record breaks once in each round: it fires once and ends once, calls a webhook each time, and pins the records before it."""

import contextlib
import datetime
import json
import subprocess
import time
from pathlib import Path

import duckdb

from load import Failed, Load
from sockets import loom_client

SPIKE = 2000
OVER_SECONDS = 3
CONFIG = """
[[source]]
name = "spikes"
field = [{{ name = "number", type = "u64" }}, {{ name = "size", type = "u32" }}]
index = [{{ name = "size", value = "size" }}]
[[rule]]
name = "spike"
source = "spikes"
index = "size"
when = "max >= {spike}"
over = "{over}s"
every = "100ms"
pin = "1s"
webhook = "http://127.0.0.1:{port}/alert"
"""


class Spikes(Load):
    """Pushes records that break no rule, and one that does, a second after the beginning of its round."""

    def __init__(self, ingestd, directory, target):
        super().__init__()
        self.ingestd, self.directory, self.target = ingestd, directory, target
        self.config = CONFIG.format(spike=SPIKE, over=OVER_SECONDS, port=target.port)
        self.number, self.acknowledged = 0, False

    def sent(self):
        return self.number

    def begin(self):
        self.acknowledged = False
        self.target.posts.clear()

    def work(self):
        begun, spiked = time.monotonic(), None
        while self.running.is_set():
            spikes = spiked is None and time.monotonic() > begun + 1
            self.number += 1
            # Without an answer, the record may be stored or not.
            with contextlib.suppress(loom_client.LoomError):
                with loom_client.connect(self.directory, "spikes") as client:
                    client.push("spikes", [(self.number, SPIKE if spikes else 1)])
                self.acknowledged |= spikes
            if spikes:
                spiked = time.time()
            time.sleep(0.1)
        # The rule must have ended before a record breaks it again. `rest` limits the wait.
        while spiked and not self.is_over(spiked):
            time.sleep(0.1)

    def is_over(self, spiked):
        done = subprocess.run([self.ingestd, "rule", "list", self.directory, "--json"], check=True, capture_output=True)
        (rule,) = json.loads(done.stdout)["rules"]
        evaluated_to = datetime.datetime.fromisoformat(rule["evaluated_to"]).timestamp()
        return rule["state"] == "normal" and evaluated_to > spiked + OVER_SECONDS

    def check(self, stored, losses, round):
        if lost := losses.pop("spikes", None):
            raise Failed(f"rules: {lost} are lost")
        deadline = time.monotonic() + 120
        while True:
            counts, path, rows = self.alerts(stored, round.since)
            posted = [post["state"] for post in self.target.posts]
            ended = counts["firing"] == counts["resolved"] and counts["pinning"] == counts["pinned"] + counts["pin failed"]
            called = round.ends or posted == ["firing", "resolved"][:2 * counts["firing"]]
            if ended and called and (counts["firing"] or not self.acknowledged):
                break
            if time.monotonic() > deadline:
                raise Failed(f"rules, {round.action}: after two minutes the alerts are {rows}, and the webhook got {posted}")
            time.sleep(0.2)
        # A pin that is being written when the daemon ends is written by the next one.
        if max(counts.values()) > 1 or counts["firing"] != counts["pinned"]:
            raise Failed(f"rules, {round.action}: {rows}")
        if path:
            self.check_pin(path, round)

    def alerts(self, stored, since):
        """The alerts of the round's record, by state, and the path of its pin. A pin has the window of the alert that it belongs to."""
        rows = stored.rows("loom_alerts", since, "state, to_ts, detail", "WHERE rule = 'spike' ORDER BY ts")
        windows = [to for state, to, _ in rows if state == "firing"]
        rows = [row for row in rows if windows and row[1] >= windows[0]]
        counts = {kind: [state for state, *_ in rows].count(kind) for kind in ("firing", "resolved", "pinning", "pinned", "pin failed")}
        return counts, next((detail for state, _, detail in rows if state == "pinned"), None), rows

    def check_pin(self, path, round):
        """Checks that a pin has the record that broke the rule, and no record of the producer that waits twice."""
        ((spikes,),) = duckdb.connect().execute(f"SELECT count(*) FROM '{path}/spikes.parquet' WHERE size >= {SPIKE}").fetchall()
        # After a restart, the time before the alert may have no more than the spike.
        records = different = round.ends_loaded
        if Path(path, "waits.parquet").exists():
            ((records, different),) = duckdb.connect().execute(f"SELECT count(*), count(DISTINCT seq) FROM '{path}/waits.parquet'").fetchall()
        if spikes != 1 or not records or records != different:
            raise Failed(f"rules, {round.action}: {path} has {spikes} spikes, {records} records of waits and {different} different ones")
