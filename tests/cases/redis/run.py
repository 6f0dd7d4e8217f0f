"""Redis is slow, rarely: packets are mangled on their way to it, and three sources together show which ones.

    sudo .venv/bin/python tests/cases/redis/run.py [--requests 4000000] [--keep FOLDER]

Starts Redis, a daemon, a recording and a load in a network namespace of its own, mangles the destination port of one request in APART, and
runs `drilldown.sql`. Exits 0 if it finds every mangled packet and no other, and if the same SQL over one record in ten misses most of them.
"""

import argparse
import contextlib
import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import scene
from scene import holds

HERE = Path(__file__).resolve().parent
PORT, WRONG_PORT = 6379, 6380
# Requests for each mangled one. The mangled ones are a quarter of the slowest 0.01 %, so that requests that are slow for other reasons are
# among them too.
APART = 40_000
FAULTS_MIN = 10
NAMESPACE = "LOOM_CASE_NAMESPACE"

# The buggy filter changes the destination of one packet with data in APART. Each is reported before it is mangled.
FILTER = f"""
table ip faults {{
    chain output {{
        type filter hook output priority 0
        tcp dport {PORT} tcp flags & psh == psh numgen inc mod {APART} {APART - 1} counter log group 5 tcp dport set {WRONG_PORT}
    }}
}}
"""


def run() -> None:
    """Run the case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=440_000, help=f"one in {APART} is mangled")
    parser.add_argument("--keep", type=Path, help="a new folder for the Loom directory and all else, which stays")
    options = parser.parse_args()
    holds(options.requests >= FAULTS_MIN * APART, f"--requests must be at least {FAULTS_MIN * APART}")
    scene.require({"nft": "nftables", "redis-server": "redis-server", "redis-cli": "redis-tools", "tcpdump": "tcpdump", "ip": "iproute2"})
    if NAMESPACE not in os.environ:
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], {**os.environ, NAMESPACE: "1"})  # noqa: S606
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with scene.folder(options.keep) as place:
        truth = record_faults(place, options.requests)
        compare(place, truth)
        click(place / "redis.loom", truth)


def record_faults(place: Path, requests: int) -> set[tuple[int, int]]:
    """Record the load while packets are mangled. Return these: source port and sequence number."""
    directory = place / "redis.loom"
    captures = ["syscalls", "--comm", "redis-server", "--comm", "redis-load", "+", "packets", "-i", "lo", "tcp"]
    with scene.redis(PORT, place), scene.daemon(directory):
        with (
            scene.waiting("redis-load", "--address", f"127.0.0.1:{PORT}", "--requests", requests, "--dir", directory) as load,
            reported_packets(place / "truth.pcap") as watcher,
            scene.recording(directory, *captures) as record,
        ):
            mangling = subprocess.run(["nft", "-f", "-"], input=FILTER, capture_output=True, text=True)
            holds(mangling.returncode == 0, f"nft cannot mangle packets; use a kernel with nf_tables and nfnetlink_log: {mangling.stderr}")
            done = scene.result(load)
            counted = subprocess.run(["nft", "list", "table", "ip", "faults"], capture_output=True, text=True, check=True).stdout
            subprocess.run(["nft", "delete", "table", "ip", "faults"], check=True)
            slow_log = ask_redis("slowlog", "len")
            print(scene.recorded(record), end="")
            scene.stop(watcher)
    mangled = int(re.search(r"counter packets (\d+)", counted)[1])
    truth = read_truth(place / "truth.pcap")
    holds(done["stored"] == done["requests"] == requests, f"the load stored {done}")
    holds(len(truth) == mangled >= FAULTS_MIN, f"nft mangled {mangled} packets and reported {len(truth)}")
    holds(not scene.losses(directory), f"records are missing: {scene.losses(directory)}")
    total = sum(scene.records(directory, source) for source in ("redis_request", "syscall", "packet"))
    print(f"{total:,} records in {done['seconds']:.1f} s; {requests / done['seconds']:,.0f} requests a second; {mangled} packets mangled")
    print(f"Redis's own slow log has {slow_log} entries\n")
    return truth


def ask_redis(*command: str) -> str:
    """Return Redis's answer to a command; empty if Redis does not run."""
    done = subprocess.run(["redis-cli", "-p", str(PORT), *command], capture_output=True, text=True)
    return done.stdout.strip()


@contextlib.contextmanager
def reported_packets(file: Path) -> Iterator[subprocess.Popen]:
    """Capture the packets that nftables reports, in their original form."""
    with scene.started(["tcpdump", "-i", "nflog:5", "-U", "-w", file], stderr=subprocess.PIPE) as process:
        line = process.stderr.readline()
        holds("listening on" in line, f"tcpdump: {line}")
        yield process


def read_truth(file: Path) -> set[tuple[int, int]]:
    """Return source port and sequence number of each packet of a capture."""
    text = subprocess.run(["tcpdump", "-nnSr", file], capture_output=True, text=True, check=True).stdout
    return {(int(port), int(seq)) for port, seq in re.findall(r"\.(\d+) > [\d.]+: .*?seq (\d+)", text)}


def drill_down(place: Path, one_in: int) -> set[tuple[int, int]]:
    """Run the drill-down over one record in `one_in`, and return the packets that it finds."""
    found = place / f"found_{one_in}.csv"
    settings = f"SET VARIABLE dir = '{place}/redis.loom'; SET VARIABLE one_in = {one_in};"
    print(scene.command_line("-cmd", settings, "-cmd", f".read {HERE}/drilldown.sql", "-c", f"COPY verdict TO '{found}'"))
    with found.open(newline="") as file:
        return {(int(row["src_port"]), int(row["tcp_seq"])) for row in csv.DictReader(file)}


def compare(place: Path, truth: set[tuple[int, int]]) -> None:
    """Compare the findings of the drill-down with the mangled packets."""
    found = drill_down(place, 1)
    print("The same over one record in ten:\n")
    sampled = drill_down(place, 10)
    print(f"complete:      {len(found & truth)} of {len(truth)} mangled packets found, {len(found - truth)} others")
    print(f"one in ten:    {len(sampled & truth)} of {len(truth)} mangled packets found, {len(sampled - truth)} others")
    holds(found == truth, f"missed {sorted(truth - found)}, invented {sorted(found - truth)}")
    holds(2 * len(sampled & truth) < len(truth), "a sample of one in ten found half of the packets or more")


def click(directory: Path, truth: set[tuple[int, int]]) -> None:
    """Find the mangled packets in the explorer and by an agent's calls."""
    found = scene.clicks("redis", directory)
    port = re.search(r"client_port (\d+)", found["record"])[1]
    astray = [row for row in found["near"] if f"src_port {port} dst_port {WRONG_PORT} " in row]
    holds(len(astray) == 1, f"{len(astray)} packets of the slowest request to the wrong port are in its neighbourhood: {found['near']}")
    called = {(row["src_port"], int(row["tcp_seq"])) for row in found["found"]}
    holds(called == truth, f"the agent missed {sorted(truth - called)}, invented {sorted(called - truth)}")
    print(f"explorer:      {found['clicks']} clicks from the slow requests to a mangled packet")
    print(f"agent:         {found['calls']} calls to {len(called & truth)} of {len(truth)} mangled packets, {len(called - truth)} others")


if __name__ == "__main__":
    scene.main(run)
