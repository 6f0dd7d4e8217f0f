"""Measures the processor time that recorders of switches of threads take from these: Loom, `perf sched record`, `perf trace`, `bpftrace`.

    sudo .venv/bin/python tests/cases/switches.py [--rounds 9] [--turns 50000]

`perf bench sched pipe` passes a byte to and fro between two threads on one processor, so that each turn has two switches, and more if
others run there. Its own processor time is compared, which counts what recorders do in the kernel at each switch, and neither their
processes nor others. Each round runs it once without a recorder and once with each, every time in another order. Prints a table in
Markdown: medians (least to greatest); the cost of a switch is the difference to the same round's run without a recorder.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

from probe_effect import spread

import scene
from scene import holds

# The names that the benchmark gives its threads.
NAME = "sched-pipe"
# Writes the seconds of its processor time in user mode and in the kernel.
PROGRAM = """
TIMEFORMAT='%U %S'
{{ time {taskset} -c 0 perf bench --format simple sched pipe --threaded --loop {turns} >&2; }} 2> {place}/cpu
"""
BPFTRACE = f"""
tracepoint:sched:sched_switch /args->prev_comm == "{NAME}"/ {{
    printf("%llu %d %d %d %d %s\\n", nsecs, cpu, args->prev_pid, args->prev_state, args->next_pid, args->prev_comm);
}}
"""


def run() -> None:
    """Measure all recorders, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--turns", type=int, default=50_000, help="of the byte, in each run")
    options = parser.parse_args()
    scene.require({"perf": "linux-perf", "bpftrace": "bpftrace", "taskset": "util-linux"})
    recorders = {
        "nothing": by_nothing,
        "Loom": by_loom,
        "`perf sched record`": by_perf_sched,
        "`perf trace`": by_perf_trace,
        "`bpftrace`, printing": by_bpftrace,
    }
    switches = 2 * options.turns
    seconds: dict[str, list[float]] = {name: [] for name in recorders}
    shares: dict[str, list[float]] = {name: [] for name in recorders}
    for turn in range(options.rounds):
        names = list(recorders)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            with scene.folder(None) as place:
                script = place / "program"
                script.write_text(PROGRAM.format(taskset=shutil.which("taskset"), turns=options.turns, place=place))
                count = recorders[name](place, [shutil.which("bash"), script])
                took = sum(float(part) for part in (place / "cpu").read_text().split()[-2:])
            seconds[name].append(took)
            shares[name].append(100 * count / switches)
            print(f"round {turn + 1}, {name}: {took:.3f} s, {count:,} switches", file=sys.stderr)
    print("| recorded by | a switch | cost of a switch | switches that it has, of those of the turns |\n|---|---|---|---|")
    for name in recorders:
        pairs = list(zip(seconds[name], seconds["nothing"], strict=True))
        cells = [name, spread([1e6 * took / switches for took, _ in pairs], "{:.2f}", " µs"), "", ""]
        if name != "nothing":
            cells[2] = spread([1e6 * (took - free) / switches for took, free in pairs], "{:.2f}", " µs")
            cells[3] = f"{statistics.median(shares[name]):.2f} % (least {min(shares[name]):.2f})"
        print(f"| {' | '.join(cells)} |")


def by_nothing(_: Path, program: list[object]) -> int:
    """Run the program alone."""
    start(program)
    return 0


def by_loom(place: Path, program: list[object]) -> int:
    """Record as a user does. Return the number of the program's switches in Loom."""
    directory = place / "switches.loom"
    with scene.recording(directory, "sched", "--comm", NAME) as record:
        start(program)
        scene.recorded(record)
    holds(not scene.losses(directory), f"Loom is not complete: {scene.losses(directory)}")
    with scene.connect() as db:
        return db.execute(f"SELECT count(*) FROM loom_scan('{directory}', 'sched') WHERE comm = '{NAME}'").fetchone()[0]


def by_perf_sched(place: Path, program: list[object]) -> int:
    """Record by `perf sched record`, which records all processes."""
    start(["perf", "sched", "record", "-o", place / "perf", "--", *program])
    script = ["perf", "script", "-i", place / "perf", "--comms", NAME, "-F", "event"]
    printed = subprocess.run([str(word) for word in script], capture_output=True, text=True, check=True).stdout
    return printed.count("sched:sched_switch")


def by_perf_trace(place: Path, program: list[object]) -> int:
    """Record by `perf trace`."""
    chosen = ["-e", "sched:sched_switch", "--filter", f'prev_comm == "{NAME}"']
    start(["perf", "trace", *chosen, "-o", place / "perf", "--", *program])
    return (place / "perf").read_text(errors="replace").count("sched:sched_switch")


def by_bpftrace(place: Path, program: list[object]) -> int:
    """Record by `bpftrace`."""
    start(["bpftrace", "-B", "full", "-e", BPFTRACE, "-o", place / "bpftrace", "-c", " ".join(str(word) for word in program)])
    return (place / "bpftrace").read_text(errors="replace").count(NAME)


def start(command: list[object]) -> None:
    """Run the program alone or by its recorder, to its end."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    holds(done.returncode == 0, f"{command[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    scene.main(run)
