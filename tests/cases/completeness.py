"""Finds the highest rate at which each recorder has every call of a program: Loom, a raw file by the same probes, `perf trace`, `bpftrace`.

    sudo .venv/bin/python tests/cases/completeness.py [--rates 100000 1000000] [--seconds 3] [--threads 1]

A program calls getppid evenly in time, and counts its calls. A recorder is complete at a rate if it has every call in every round. Prints a
table in Markdown: for each recorder and rate, the share of calls that it has, and the rate that the program reached while it was recorded.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

import scene
from scene import CASES, holds

# The fields that Loom records too, for each call when it returns.
BPFTRACE = """
tracepoint:syscalls:sys_enter_getppid /pid == cpid/ { @entered[tid] = nsecs; }
tracepoint:syscalls:sys_exit_getppid /pid == cpid/ {
    printf("%llu %llu %d %d %d %d %s\\n", nsecs, nsecs - @entered[tid], args->ret, cpu, pid, tid, comm);
}
"""


def run() -> None:
    """Measure all recorders at all rates, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[10_000, 100_000, 300_000, 1_000_000, 2_000_000])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="that call")
    options = parser.parse_args()
    scene.require({"perf": "linux-perf", "bpftrace": "bpftrace"})
    recorders = {
        "Loom": by_loom,
        "raw file": by_raw,
        "`perf trace`": by_perf,
        "`bpftrace`, printing": by_bpftrace,
        "`perf stat`, counting only": by_perf_stat,
    }
    seen: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for turn in range(options.rounds):
        for rate in options.rates:
            program = ["calls", "--seconds", options.seconds, "--rate", rate, "--threads", options.threads]
            for name, recorder in recorders.items():
                with scene.folder(None) as place:
                    done, count = recorder(place, program)
                calls = done["calls"]
                holds(count <= calls, f"{name} has {count} of {calls} calls")
                seen.setdefault((name, rate), []).append((count / calls, calls / done["seconds"]))
                print(f"round {turn + 1}, {rate:,} calls a second, {name}: {count:,} of {calls:,}", file=sys.stderr)
    print_table(list(recorders), options.rates, seen)


def by_loom(place: Path, program: list[object]) -> tuple[dict, int]:
    """Record as a user does. Return the program's counts, and the number of calls in Loom."""
    directory = place / "calls.loom"
    with scene.waiting(*program) as process:
        with scene.recording(directory, "syscalls", "--pid", process.pid, "--syscall", "getppid") as record:
            done = scene.result(process)
            scene.recorded(record)
    with scene.connect() as db:
        count = db.execute(f"SELECT count(*) FROM loom_scan('{directory}', 'syscall') WHERE number = 'getppid'").fetchone()[0]
    return done, count


def by_raw(place: Path, program: list[object]) -> tuple[dict, int]:
    """Record by the same probes into a raw file."""
    with scene.waiting(*program) as process, scene.waiting("raw", place, "--pid", process.pid, "--syscall", "getppid") as raw:
        done = scene.result(process)
        return done, scene.result(raw)["syscall"]["recorded"]


def by_perf(place: Path, program: list[object]) -> tuple[dict, int]:
    """Record by `perf trace`, which starts the program."""
    command = ["perf", "trace", "-e", "getppid", "-o", place / "perf", "--", CASES, *program]
    # A call that another thread interrupts has two lines. The second has the result.
    return started_by(command), lines(place / "perf", r"getppid\(.*\) += ")


def by_perf_stat(place: Path, program: list[object]) -> tuple[dict, int]:
    """Count by `perf stat`, which starts the program and keeps no record. Its count is the number of calls."""
    command = ["perf", "stat", "-x,", "-e", "syscalls:sys_exit_getppid", "-o", place / "perf", "--", CASES, *program]
    done = started_by(command)
    return done, int(re.search(r"^(\d+),", (place / "perf").read_text(), re.MULTILINE)[1])


def by_bpftrace(place: Path, program: list[object]) -> tuple[dict, int]:
    """Record by `bpftrace`, which starts the program."""
    started = " ".join(str(word) for word in [CASES, *program])
    command = ["bpftrace", "-B", "full", "-e", BPFTRACE, "-o", place / "bpftrace", "-c", started]
    return started_by(command), lines(place / "bpftrace", r"^\d+ \d+ \d+ \d+ \d+ \d+ ")


def started_by(command: list[object]) -> dict:
    """Run a recorder that starts the program, and return the program's counts."""
    ended = subprocess.run([str(word) for word in command], input="go\n", capture_output=True, text=True)
    found = re.search(r'{"calls".*}', ended.stdout)
    holds(found is not None, f"{command[0]} ended with {ended.returncode}: {ended.stderr}")
    return json.loads(found[0])


def lines(file: Path, pattern: str) -> int:
    """Count the lines that match."""
    with file.open(errors="replace") as text:
        return sum(1 for line in text if re.search(pattern, line))


def print_table(names: list[str], rates: list[int], seen: dict[tuple[str, int], list[tuple[float, float]]]) -> None:
    """Print the shares and the rates reached, as medians, and the greatest rate at which every round was complete."""
    print("| recorder | complete up to | " + " | ".join(f"{rate:,}/s" for rate in rates) + " |")
    print("|---" * (len(rates) + 2) + "|")
    for name in names:
        complete = [rate for rate in rates if all(share == 1 for share, _ in seen[name, rate])]
        cells = []
        for rate in rates:
            share, reached = (statistics.median(column) for column in zip(*seen[name, rate], strict=True))
            cells.append(f"{share:.3%} at {reached:,.0f}/s" if share < 1 else f"all at {reached:,.0f}/s")
        reached = max((statistics.median(reached for _, reached in seen[name, rate]) for rate in complete), default=0)
        print(f"| {name} | {reached:,.0f}/s | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    scene.main(run)
