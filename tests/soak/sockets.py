"""Producers over the daemon's socket, which push numbered records. A kill of the daemon loses only records that were not acknowledged."""

import os
import random
import struct
import sys
import time
from pathlib import Path

from load import Failed, Load, Pace, compare_losses

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "ingestd" / "clients" / "python"))
import loom_client  # noqa: E402

SOURCE = """
[[source]]
name = "{name}"
on_overload = "{policy}"
[[source.field]]
name = "producer"
type = "u32"
[[source.field]]
name = "seq"
type = "u64"
[[source.field]]
name = "body"
type = "bytes[20]"
[[source.index]]
name = "seq"
value = "seq"
"""
RECORD = struct.Struct("<IQ20s")
BATCH = 2000
# Bytes that do not compress, so that retention reaches its limit.
NOISE = os.urandom(1 << 20)


def pack(producer, seqs):
    """The records of a range of numbers."""
    at = random.randrange(len(NOISE) - len(seqs) - 20)
    return b"".join(RECORD.pack(producer, seq, NOISE[at + n:at + n + 20]) for n, seq in enumerate(seqs))


class Producer(Load):
    def __init__(self, directory, name, policy, number, rate):
        super().__init__()
        self.directory, self.source, self.waits, self.number = directory, name, policy == "block", number
        self.config = SOURCE.format(name=name, policy=policy)
        self.pace = Pace(rate)
        self.seq = self.acknowledged = 0
        self.lost = 0  # refused and dropped, as reported by syncs
        self.unsure = 0  # records that were sent and not acknowledged when a connection ended

    def __str__(self):
        return self.source

    def sent(self):
        return self.seq

    def begin(self):
        self.lost = self.unsure = 0

    def work(self):
        while self.running.is_set():
            self.push()

    def push(self):
        sent, batch = 0, self.pace.batch(BATCH)
        try:
            client = loom_client.connect(self.directory, self.source)
            seen = {"refused": 0, "dropped": 0}
            while True:
                for _ in range(20 * batch // BATCH or 1):
                    client.push(self.source, pack(self.number, range(self.seq, self.seq + batch)))
                    self.seq += batch
                    sent += batch
                    self.pace.passed(batch)
                # A byte too short, and so refused.
                layout = client.sources[self.source]
                client._frame(0x03, layout.id, struct.pack("<H", 3) + b"bad")
                sent += 1
                counts = client.sync()
                if counts["received"] != counts["stored"] + counts["refused"] + counts["dropped"]:
                    raise Failed(f"{self.source}: {counts}")
                self.lost += counts["refused"] + counts["dropped"] - sum(seen.values())
                seen = {key: counts[key] for key in seen}
                self.acknowledged, sent = self.seq, 0
                if not self.running.is_set():
                    return client.close()
        except loom_client.LoomError:
            self.unsure += sent
            time.sleep(0.05)

    def check(self, stored, losses, round):
        compare_losses(self.source, sum(losses.pop(self.source, {}).values()), self.lost, self.unsure, round)
        if self.waits:
            self.check_whole(stored, round)

    def check_whole(self, stored, round):
        """Checks that everything acknowledged is stored once, in order and without a hole, for a source that waits."""
        columns = "min(seq), max(seq), count(*), count(DISTINCT seq)"
        ((least, most, records, different),) = stored.rows(self.source, round.since, columns, f"WHERE producer = {self.number}")
        if records == 0 or records != different:
            raise Failed(f"{self.source}: {records} records, {different} different ones")
        if most < self.acknowledged - 1:
            raise Failed(f"{self.source}: {most} is stored, {self.acknowledged} were acknowledged")
        if self.unsure == 0 and most - least + 1 != records:
            raise Failed(f"{self.source}: {records} records from {least} to {most}")
