"""The daemon, its loads and its readers: rounds in which the daemon is killed, stopped, reloaded or left alone, with checks after each."""

import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from alerts import Spikes
from archive import Archiver
from disk import Disk, taken
from load import Failed, Round
from otlp import Sender
from readers import Database, Reader, commands
from rings import Rings
from scrapes import Target
from sockets import Producer, loom_client
from stored import Stored

MAX_BYTES = 640 << 20
PIN_MAX_BYTES = 128 << 20
# The daemon's memory without staging: 64 MiB are its cache of what it reads for rules and pins, and 64 MiB the requests of OTLP at most.
MEMORY_MAX = 288 << 20
# The space that the file system may lose besides the files: to readers, which keep files open, and without readers to one file that is
# being removed.
HELD_MAX = 512 << 20
DISK_MARGIN = 20 << 20
# The status counts what segments have; two are reserved for raw units.
RESERVED_MAX = 36 << 20
# The memory that the daemon may share besides its staging and its rings.
SHARED_MARGIN = 1 << 20
CONFIG = f"""
[log]
block = "4MiB"
segment = "16MiB"
durability = "200ms"
staging = "{{staging}}"
[retention]
max_bytes = "{MAX_BYTES}B"
pin_max_bytes = "{PIN_MAX_BYTES}B"
[metrics]
interval = "1s"
"""
# Sources, fields and indexes that the readers compare.
COMPARED = [("waits", "seq", "seq"), ("spans", "duration_ns", "duration"), ("ring_waits", "seq", "seq")]


class Soak:
    def __init__(self, ingestd, library, databases, seconds, seed, rate):
        self.ingestd, self.random = ingestd, random.Random(seed)
        self.end = time.monotonic() + seconds
        self.place = Path(tempfile.mkdtemp(prefix="loom-soak-"))
        self.disk_of = Disk(self.place, 4 * MAX_BYTES)
        self.staging = Path(tempfile.mkdtemp(prefix="loom-soak-", dir="/dev/shm"))
        self.directory, self.config = self.disk_of.root / "loom", self.place / "loom.toml"
        self.stored = Stored(ingestd, self.directory, self.place)
        target, seeds = Target(), random.Random(seed)
        self.loads = [
            Producer(self.directory, "waits", "block", 1, rate),
            Producer(self.directory, "drops", "drop_new", 2, rate),
            Sender(rate),
            Rings(self.directory, library, rate),
            Spikes(ingestd, self.directory, target),
        ]
        self.archiver = Archiver(ingestd, self.directory, self.place, seeds.random())
        self.checked = [*self.loads, target, self.archiver]
        configs = [CONFIG.format(staging=self.staging), target.config, *(load.config for load in self.loads)]
        self.config.write_text("".join(configs))
        self.databases = [Database(*each, self.directory, self.place, COMPARED, seeds.random()) for each in databases]
        self.readers = [Reader([one]) for one in commands(ingestd, self.directory, self.place)]
        self.readers += [reader for database in self.databases for reader in database.readers]
        self.daemon, self.memory, self.disk, self.held, self.exact = None, 0, 0, 0, 0

    def start(self):
        command = [self.ingestd, "run", self.directory, "--config", self.config]
        self.log = open(self.place / "daemon.log", "ab")
        self.daemon = subprocess.Popen(command, stderr=self.log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                return loom_client.connect(self.directory).close()
            except loom_client.LoomError:
                if self.daemon.poll() is not None:
                    raise Failed("the daemon did not start; see daemon.log") from None
                time.sleep(0.02)
        raise Failed("the daemon does not listen after a minute")

    def measure(self):
        """Measures memory without staging, which the configuration bounds, the disk of the segments, and the bytes held besides them."""
        self.memory = max(self.memory, self.resident("RssAnon:"))
        self.disk = max(self.disk, self.segments())
        self.held = max(self.held, self.disk_of.held())

    def resident(self, kind):
        """A part of the daemon's memory, as the kernel counts it. Pages that are mapped twice count once as `Pss_Shmem`."""
        folder = Path(f"/proc/{self.daemon.pid}")
        name = "smaps_rollup" if kind.startswith("Pss") else "status"
        for line in (folder / name).read_text().splitlines():
            if line.startswith(kind):
                return int(line.split()[1]) << 10
        return 0

    def segments(self):
        return sum(taken(self.directory / log) for log in ("records", "chunks", "times"))

    def add_up(self):
        """Checks that the daemon's figures equal the system's, while nothing is pushed or read."""
        deadline = time.monotonic() + 60
        while True:
            status = loom_client.connect(self.directory).status()
            shared = self.resident("Pss_Shmem:") - taken(self.staging) - status["ring_bytes"]
            found = {
                "the disk has lost beside its files": (abs(self.disk_of.held()), DISK_MARGIN),
                "files and status differ by": (abs(self.segments() - status["segment_bytes"]), RESERVED_MAX),
                "the daemon shares beside staging and rings": (shared, SHARED_MARGIN),
            }
            wrong = [f"{what} {size} bytes, {most} are allowed" for what, (size, most) in found.items() if size > most]
            if not wrong:
                return
            if time.monotonic() > deadline:
                raise Failed("; ".join(wrong))
            time.sleep(0.2)

    def wait_quiet(self):
        """Waits until every loss is in the log."""
        for _ in range(600):
            if loom_client.connect(self.directory).status()["pending_losses"] == 0:
                return
            time.sleep(0.05)
        raise Failed("losses are not recorded after half a minute")

    def round(self, number):
        round = Round(time.time(), self.random.choice(["rest", "reload", "kill", "stop", "quiet kill", "stopped"]))
        for load in self.loads:
            load.begin()
            load.go()
        self.disturb(round)
        for load in self.loads:
            load.rest()
        if round.action == "quiet kill":
            self.restart(round)
        self.wait_quiet()
        sent = sum(load.sent() for load in self.loads)
        if number > 1 and self.stored.export("waits", round.since, "--to") is None:
            # Retention removed the first records of this round, and with them some of its losses.
            print(f"{number:4} {round.action:10} {sent:>12,} records in all, more in a round than is kept", flush=True)
            for each in self.checked:
                each.skip()
            return
        self.exact += 1
        losses = self.stored.losses(round.since)
        lost = sum(sum(reasons.values()) for reasons in losses.values())
        for each in self.checked:
            each.check(self.stored, losses, round)
        if round.action == "stop":
            # A daemon that stops does not wait for room for its own records. The next one decides again what they said.
            for source in ("loom_alerts", "loom_metrics", "loom_rules"):
                losses.get(source, {}).pop("overload", None)
            losses = {source: reasons for source, reasons in losses.items() if reasons}
        if losses:
            raise Failed(f"{round.action}: losses that were not reported: {dict(losses)}")
        print(f"{number:4} {round.action:10} {sent:>12,} records in all, {lost:>9,} lost and reported, "
              f"{self.memory >> 20} MiB, {self.disk >> 20} MiB on disk", flush=True)

    def disturb(self, round):
        """Waits while the loads send, and does what the round's action says."""
        deadline = min(time.monotonic() + self.random.uniform(2, 5), max(self.end, time.monotonic() + 2))
        while time.monotonic() < deadline:
            time.sleep(0.1)
            self.measure()
            if round.action == "reload" and self.random.random() < 0.2:
                self.daemon.send_signal(signal.SIGHUP)
            if round.action == "stopped" and self.random.random() < 0.2:
                self.daemon.send_signal(signal.SIGSTOP)
                time.sleep(0.3)
                self.daemon.send_signal(signal.SIGCONT)
        if round.ends_loaded:
            self.restart(round)

    def restart(self, round):
        self.daemon.send_signal(signal.SIGTERM if round.action == "stop" else signal.SIGKILL)
        self.ended(round.action)
        self.start()

    def ended(self, action):
        code = self.daemon.wait(timeout=120)
        if action == "stop" and code != 0:
            raise Failed(f"SIGTERM: the daemon ended with {code}")

    # G13
    def run(self):
        self.start()
        for thread in self.threads():
            thread.start()
        number = 0
        while time.monotonic() < self.end:
            number += 1
            self.round(number)
            self.check_readers()
        for thread in self.threads():
            thread.over = True
        for load in self.loads:
            load.end()
        for thread in self.threads():
            thread.join(60)
        self.add_up()
        self.daemon.terminate()
        self.ended("stop")
        checked = subprocess.run([self.ingestd, "check", self.directory], capture_output=True, text=True)
        if checked.returncode != 0:
            raise Failed(f"check: {checked.stdout}{checked.stderr}")
        if self.memory > MEMORY_MAX:
            raise Failed(f"{self.memory} bytes of memory were taken, {MEMORY_MAX} are allowed")
        # Retention waits for a pin that is being written.
        if self.disk > MAX_BYTES + PIN_MAX_BYTES + (32 << 20):
            raise Failed(f"{self.disk} bytes of disk were taken, {MAX_BYTES} are allowed")
        if self.held > HELD_MAX:
            raise Failed(f"readers held {self.held} bytes of evicted files, {HELD_MAX} are allowed")
        self.check_readers()
        self.archiver.check_end()
        if self.exact == 0:
            raise Failed("no round could be compared")
        total = {count: sum(getattr(reader, count, 0) for reader in self.readers) for count in ("runs", "stops", "kills")}
        print(f"sound after {number} rounds, {self.exact} of them compared; {total['runs']} reads, {total['stops']} stops and {total['kills']} kills "
              f"of live readers; {self.memory >> 20} MiB of memory and {self.disk >> 20} MiB of disk at most, "
              f"and {self.held >> 20} MiB of evicted files held by readers")
        for database in self.databases:
            print(f"DuckDB {database.version} compared {database.comparisons()}")
        print(f"{self.archiver.compared:,} records of the archive compared, {self.archiver.kills} kills of the archiver")

    def kill(self):
        """Ends everything that the soak started, also after a failure."""
        for thread in self.threads():
            thread.over = True
        for thread in [self.archiver, *self.readers]:
            if thread.is_alive():
                thread.join(60)
        if self.daemon and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()

    def check_readers(self):
        for reader in [self.archiver, *self.readers]:
            if reader.error:
                raise Failed(f"a reader failed: {reader.error}")

    def threads(self):
        return [*self.loads, self.archiver, *self.readers]
