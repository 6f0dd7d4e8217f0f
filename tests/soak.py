"""A daemon under all loads at once, for a given time: full rate, restarts, kills, retention at its limit, readers of all kinds.

    .venv/bin/python tests/soak.py INGESTD [--seconds 600] [--extension dist/duckdb-v2/loom.duckdb_extension]

Readers are commands of ingestd, queries of DuckDB in new processes, and queries in long-lived processes, which are stopped and killed at
random. Each round checks that the counts that producers got equal those of the log (received = stored + refused + dropped, exact after a
kill) and that nothing of the blocking source is missing. At the end it runs `ingestd check` and checks the most memory and disk that was
used. Prints a line for each round and exits 0, or prints the first failure and exits 1, and keeps the directory.

The accounts must add up: the daemon's shared memory is its staging and its rings, and the file system, which is the soak's own if root runs
it, has lost what the directory's files take. Idle readers keep evicted files open, at most HELD_MAX; without readers DISK_MARGIN is
allowed.
"""

import argparse
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "ingestd" / "clients" / "python"))
import loom_client  # noqa: E402

MAX_BYTES = 640 << 20
MEMORY_MAX = 160 << 20
# What the file system may have lost besides the files: to readers, which keep files open, and without readers to one file that is being
# removed.
HELD_MAX = 512 << 20
DISK_MARGIN = 20 << 20
# What the daemon may share besides its staging and its rings.
SHARED_MARGIN = 1 << 20
CONFIG = f"""
[log]
block = "4MiB"
segment = "16MiB"
durability = "200ms"
staging = "{{staging}}"
[retention]
max_bytes = "{MAX_BYTES}B"
[metrics]
interval = "1s"
"""
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


class Failed(Exception):
    """A check failed."""


class Producer(threading.Thread):
    """Pushes numbered records until it is told to rest. A kill of the daemon loses only records that were not acknowledged."""

    def __init__(self, directory, name, number):
        super().__init__(daemon=True)
        self.directory, self.source, self.number = directory, name, number
        self.seq = self.acknowledged = 0
        self.lost = 0  # refused and dropped, as reported by syncs
        self.unsure = 0  # records that were sent and not acknowledged when a connection ended
        self.running, self.resting, self.over = threading.Event(), threading.Event(), False
        self.error = None

    def run(self):
        try:
            while not self.over:
                self.resting.set()
                self.running.wait()
                if self.over:
                    return
                self.resting.clear()
                self.push_until_rest()
        except Exception as error:  # reported by the main thread
            self.error = error
            self.resting.set()

    def push_until_rest(self):
        sent = 0
        try:
            client = loom_client.connect(self.directory, self.source)
            seen = {"refused": 0, "dropped": 0}
            while True:
                for _ in range(20):
                    body = b"".join(RECORD.pack(self.number, self.seq + n, b"x" * 20) for n in range(BATCH))
                    client.push(self.source, body)
                    self.seq += BATCH
                    sent += BATCH
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


QUERIES = """
import duckdb, sys
extension, directory = sys.argv[1:3]
gone = sys.argv[3:]
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
connection.execute(f"LOAD '{extension}'")
def one(sql):
    return connection.execute(sql).fetchone()
while True:
    try:
        (at,) = one(f"SELECT position FROM loom_snapshot('{directory}')")
        count = f"SELECT count(*), sum(seq) FROM loom_scan('{directory}', 'waits', at := {at})"
        before = one(count)
        summed = one(f"SELECT count, sum FROM loom_aggregate('{directory}', 'waits', 'seq', at := {at})")
        # Where nothing was evicted meanwhile, records and summaries agree.
        if before == one(count) and (before[0], before[1]) != (summed[0], summed[1]):
            sys.exit(f'{before} in the records, {summed} in the summaries')
    except duckdb.Error as error:
        if not any(word in str(error).lower() for word in gone):
            raise
"""


class Unlucky(threading.Thread):
    """A process that queries without end, until it is stopped in the middle for a while, or killed and replaced by the next one."""

    def __init__(self, command, random):
        super().__init__(daemon=True)
        self.command, self.random = command, random
        self.over, self.error, self.stops, self.kills = False, None, 0, 0

    def run(self):
        while not self.over:
            process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
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


def taken(folder):
    """The bytes that the files of a folder take on the disk."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total


class Disk:
    """A file system of the soak's own, so that its losses are the directory's. Without root the place's is used and not compared."""

    def __init__(self, place):
        self.root, image = place / "disk", place / "disk.img"
        self.root.mkdir()
        self.mounted = False
        if os.geteuid() == 0 and shutil.which("mkfs.ext4"):
            image.touch()
            os.truncate(image, 4 * MAX_BYTES)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
            mount = ["mount", "-o", "loop,discard", image, self.root]
            self.mounted = subprocess.run(mount, check=False).returncode == 0
        if not self.mounted:
            print("what `df` says is not compared: it needs root and mkfs.ext4", flush=True)
        self.before = self.used()

    def used(self):
        found = os.statvfs(self.root)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def held(self):
        """The bytes that the file system has lost besides those of its files. Files come and go between the readings."""
        if not self.mounted:
            return 0
        before, files, after = self.used(), taken(self.root), self.used()
        return min(before, after) - self.before - files

    def unmount(self):
        if self.mounted:
            subprocess.run(["umount", self.root], check=True)


class Soak:
    def __init__(self, ingestd, extension, seconds, seed):
        self.ingestd, self.extension, self.random = ingestd, extension, random.Random(seed)
        self.end = time.monotonic() + seconds
        self.place = Path(tempfile.mkdtemp(prefix="loom-soak-"))
        self.disk_of = Disk(self.place)
        self.staging = Path(tempfile.mkdtemp(prefix="loom-soak-", dir="/dev/shm"))
        self.directory, self.config = self.disk_of.root / "loom", self.place / "loom.toml"
        sources = SOURCE.format(name="waits", policy="block") + SOURCE.format(name="drops", policy="drop_new")
        self.config.write_text(CONFIG.format(staging=self.staging) + sources)
        self.daemon, self.memory, self.disk, self.held, self.exact, self.unlucky = None, 0, 0, 0, 0, []

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
                    raise Failed("the daemon did not start; see daemon.log")
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
                "files and status differ by": (abs(self.segments() - status["segment_bytes"]), DISK_MARGIN),
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

    def export(self, source, since, bound="--from"):
        out = self.place / f"{source}.parquet"
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since)) + f".{int(since % 1 * 1e9):09d}Z"
        command = [self.ingestd, "export", self.directory, "--source", source, bound, stamp, "--out", out]
        done = subprocess.run(command, capture_output=True, text=True)
        if "unknown source" in done.stderr or done.stdout == "rows=0\n":
            return None
        if done.returncode != 0:
            raise Failed(f"export of {source}: {done.stderr}")
        return f"read_parquet('{out}')"

    def lost_since(self, since):
        table = self.export("loom_losses", since)
        if table is None:
            return 0
        (records, unknown) = duckdb.connect().execute(
            f"SELECT coalesce(sum(records), 0)::BIGINT, count(*) - count(records) FROM {table}"
        ).fetchone()
        if unknown:
            raise Failed("a kill left losses whose number is not known")
        return records

    def check_stored(self, producer, since, before):
        """Checks that everything acknowledged since is stored once, in order and without a hole, for a source that waits."""
        table = self.export(producer.source, since)
        least, most, records, different = duckdb.connect().execute(
            f"SELECT min(seq), max(seq), count(*), count(DISTINCT seq) FROM {table} WHERE producer = {producer.number}"
        ).fetchone()
        if records == 0 or records != different:
            raise Failed(f"{producer.source}: {records} records, {different} different ones")
        if most < producer.acknowledged - 1:
            raise Failed(f"{producer.source}: {most} is stored, {producer.acknowledged} were acknowledged")
        if producer.unsure == before and most - least + 1 != records:
            raise Failed(f"{producer.source}: {records} records from {least} to {most}")

    def round(self, number, producers):
        since = time.time()
        lost_before = sum(producer.lost for producer in producers)
        unsure_before = [producer.unsure for producer in producers]
        for producer in producers:
            producer.running.set()
        deadline = min(time.monotonic() + self.random.uniform(2, 5), max(self.end, time.monotonic() + 2))
        action = self.random.choice(["rest", "reload", "kill", "stop", "quiet kill", "stopped"])
        killed = False
        while time.monotonic() < deadline:
            time.sleep(0.1)
            self.measure()
            if action == "reload" and self.random.random() < 0.2:
                self.daemon.send_signal(signal.SIGHUP)
            if action == "stopped" and self.random.random() < 0.2:
                self.daemon.send_signal(signal.SIGSTOP)
                time.sleep(0.3)
                self.daemon.send_signal(signal.SIGCONT)
        if action in ("kill", "stop"):
            self.daemon.send_signal(signal.SIGKILL if action == "kill" else signal.SIGTERM)
            killed = action == "kill"
            self.ended(action)
            self.start()
        for producer in producers:
            producer.running.clear()
        for producer in producers:
            if not producer.resting.wait(120):
                raise Failed(f"{producer.source} does not end within two minutes")
            if producer.error:
                raise Failed(f"{producer.source}: {producer.error!r}")
        if action == "quiet kill":
            self.daemon.kill()
            self.ended("kill")
            self.start()
        self.wait_quiet()
        told = sum(producer.lost for producer in producers) - lost_before
        unsure = [producer.unsure - before for producer, before in zip(producers, unsure_before)]
        sent = sum(producer.seq for producer in producers)
        if number > 1 and self.export("waits", since, "--to") is None:
            # Retention removed the first records of this round, and with them some of its losses.
            print(f"{number:4} {action:10} {sent:>12,} records in all, more in a round than is kept", flush=True)
            return
        self.exact += 1
        found = self.lost_since(since)
        # Besides the reported losses, only records that were under way when a connection ended can be among the losses.
        if not told <= found <= told + sum(unsure):
            raise Failed(f"{action}: {found} losses in the log, {told} were told, {unsure} are not known")
        if sum(unsure) and not killed and action != "stop":
            raise Failed(f"{action}: a connection ended by itself")
        self.check_stored(producers[0], since, unsure_before[0])
        print(f"{number:4} {action:10} {sent:>12,} records in all, {found:>9,} lost and told, "
              f"{self.memory >> 20} MiB, {self.disk >> 20} MiB on disk", flush=True)

    def ended(self, action):
        code = self.daemon.wait(timeout=120)
        if action == "stop" and code != 0:
            raise Failed(f"SIGTERM: the daemon ended with {code}")

    def readers(self):
        gone = ("evicted", "its writer runs", "no daemon", "unknown source")
        commands = [([self.ingestd, "status", self.directory], gone + ("connection", "stopped")),
                    ([self.ingestd, "export", self.directory, "--source", "drops", "--out", self.place / "r.parquet"], gone),
                    ([self.ingestd, "check", self.directory], gone)]
        if self.extension:
            query = (f"LOAD '{self.extension}'; SELECT count(*), max(seq) FROM loom_scan('{self.directory}', 'waits'); "
                     f"FROM loom_aggregate('{self.directory}', 'drops', 'seq', quantiles := [0.5, 0.999])")
            script = f"import duckdb; duckdb.connect(config={{'allow_unsigned_extensions': 'true'}}).execute({query!r}).fetchall()"
            commands.append(([sys.executable, "-c", script], gone))
        readers = [Reader(commands[at:at + 1]) for at in range(len(commands))]
        if self.extension:
            live = [sys.executable, "-c", QUERIES, self.extension, str(self.directory), *gone]
            self.unlucky = [Unlucky(live, random.Random(self.random.random())) for _ in range(2)]
        return readers + self.unlucky

    def run(self):
        self.start()
        producers = [Producer(self.directory, "waits", 1), Producer(self.directory, "drops", 2)]
        readers = self.readers()
        for thread in [*producers, *readers]:
            thread.start()
        number = 0
        while time.monotonic() < self.end:
            number += 1
            self.round(number, producers)
            for reader in readers:
                if reader.error:
                    raise Failed(f"a reader failed: {reader.error}")
        for thread in [*producers, *readers]:
            thread.over = True
        for producer in producers:
            producer.running.set()
        for reader in readers:
            reader.join(60)
        for producer in producers:
            producer.join(120)
        self.add_up()
        self.daemon.terminate()
        self.ended("stop")
        checked = subprocess.run([self.ingestd, "check", self.directory], capture_output=True, text=True)
        if checked.returncode != 0:
            raise Failed(f"check: {checked.stdout}{checked.stderr}")
        if self.memory > MEMORY_MAX:
            raise Failed(f"{self.memory} bytes of memory were taken, {MEMORY_MAX} are allowed")
        if self.disk > MAX_BYTES + (32 << 20):
            raise Failed(f"{self.disk} bytes of disk were taken, {MAX_BYTES} are allowed")
        if self.held > HELD_MAX:
            raise Failed(f"readers held {self.held} bytes of evicted files, {HELD_MAX} are allowed")
        for reader in readers:
            if reader.error:
                raise Failed(f"a reader failed: {reader.error}")
        if self.exact == 0:
            raise Failed("no round could be compared")
        print(f"sound after {number} rounds, {self.exact} of them compared; {sum(reader.runs for reader in readers if isinstance(reader, Reader))} reads, "
              f"{sum(reader.stops for reader in self.unlucky)} stops and {sum(reader.kills for reader in self.unlucky)} kills of live readers; "
              f"{self.memory >> 20} MiB of memory and {self.disk >> 20} MiB of disk at most, and {self.held >> 20} MiB of evicted files held by readers")


# G13
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ingestd")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--extension")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    soak = Soak(given.ingestd, given.extension, given.seconds, given.seed)
    try:
        soak.run()
    except Failed as failed:
        print(f"FAILED: {failed}; the directory is {soak.place}", file=sys.stderr)
        return 1
    finally:
        if soak.daemon and soak.daemon.poll() is None:
            soak.daemon.kill()
    soak.disk_of.unmount()
    shutil.rmtree(soak.place)
    shutil.rmtree(soak.staging)
    return 0


if __name__ == "__main__":
    sys.exit(main())
