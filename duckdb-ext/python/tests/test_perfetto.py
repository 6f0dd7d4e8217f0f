"""`ingestd export --format perfetto`: a reader of the trace finds each record in its place, decoded with the protobufs of Perfetto."""

import csv
import random
import subprocess
import tomllib
from collections import Counter, defaultdict
from datetime import UTC
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

import loom_duckdb

T0 = 1_772_323_200_000_000_000
FIELDS = """
[[source]]
name = "calls"
time = "own"
field = [
    { name = "latency_ns", type = "u64" },
    { name = "result", type = "i64" },
    { name = "number", type = "u16", labels = { 0 = "read", 1 = "write", 7 = "poll" } },
    { name = "pid", type = "u32" },
    { name = "tid", type = "u32" },
    { name = "comm", type = "char[16]" },
]
index = [{ name = "latency", value = "latency_ns" }]

[[source]]
name = "requests"
time = "own"
field = [{ name = "tid", type = "u32" }, { name = "latency_ns", type = "u64", nullable = true }, { name = "ok", type = "bool" }]

[[source]]
name = "exits"
time = "own"
field = [
    { name = "pid", type = "u32", nullable = true },
    { name = "event", type = "u8", labels = { 1 = "exit" } },
    { name = "id", type = "bytes[80]" },
]

[[source]]
name = "spans"
time = "own"
field = [
    { name = "duration_ns", type = "i64", nullable = true },
    { name = "name", type = "utf8" },
    { name = "service", type = "utf8", nullable = true },
    { name = "trace_id", type = "char[32]" },
    { name = "span_id", type = "char[16]" },
]
index = [{ name = "duration", value = "duration_ns" }]

[[source]]
name = "logs"
time = "own"
field = [
    { name = "body", type = "utf8" },
    { name = "service", type = "utf8", nullable = true },
    { name = "trace_id", type = "char[32]", nullable = true },
    { name = "span_id", type = "char[16]", nullable = true },
]

[[source]]
name = "load"
time = "own"
field = [{ name = "free_bytes", type = "u64" }, { name = "busy", type = "f64", nullable = true }, { name = "seen", type = "i32" }]
index = [{ name = "free", value = "free_bytes" }, { name = "busy", value = "busy" }]
"""


def row(source: str, n: int, dice: random.Random) -> list:
    """Make the row of a number: many begin or end at the same time, and overlap in all ways."""
    ts, tid = T0 + n * 3 + dice.randrange(40), dice.choice([500, 501, 777, 4_000_000_000])
    word, service = dice.choice(["a", 'b "c"', "ä", "d,e"]), dice.choice(["", "cart", "shop"])
    match source:
        case "calls":
            number = dice.choice(["read", "write", "poll", 9])
            return [ts, dice.randrange(60), -n, number, tid // 500 * 500, tid, f"c{tid % 100}"]
        case "requests":
            return [ts, tid, dice.choice(["", 0, 5, 100]), "true"]
        case "exits":
            return [ts, dice.choice(["", 500, 900]), "exit", f"{n:080}"]
        case "spans":
            return [ts, dice.choice(["", -4, 0, 9, 100, 1000]), word, service, f"{n:032x}", f"{n:016x}"]
        case "logs":
            return [ts, word * 3, service, "", ""]
        case _:
            return [ts, dice.choice([n, 2**64 - 1]), dice.choice(["", 0.1, n / 7]), n]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, ingestd: str) -> Path:
    """Write a directory with sources of each kind."""
    place = tmp_path_factory.mktemp("perfetto")
    (place / "fields.toml").write_text(FIELDS)
    dice = random.Random(7)  # noqa: S311
    for source in tomllib.loads(FIELDS)["source"]:
        name, file = source["name"], place / "rows.csv"
        with file.open("w", newline="") as lines:
            csv.writer(lines).writerows(
                [["time", *(field["name"] for field in source["field"])], *(row(name, n, dice) for n in range(3000))]
            )
        options = ["--source", name, "--fields", str(place / "fields.toml"), "--ts", "time", "--ts-unit", "ns"]
        loaded = subprocess.run([ingestd, "load", str(place / "x.loom"), *options, str(file)], capture_output=True, text=True)
        assert loaded.returncode == 0, loaded
    packets = Path(__file__).parents[3] / "tests/inputs/four_tags.pcap"
    subprocess.run([ingestd, "load", str(place / "x.loom"), "--source", "packet", str(packets)], check=True, capture_output=True)
    return place / "x.loom"


class Read:
    """What a reader makes of a trace: it sorts the packets by time, and the end of a slice belongs to the latest begin of its track."""

    def __init__(self, data: bytes) -> None:
        """Decode it."""
        packets = Trace.FromString(data).packet
        self.tracks = {}
        self.slices: Counter = Counter()
        self.instants: Counter = Counter()
        self.counts: Counter = Counter()
        self.clocks = [packet.clock_snapshot for packet in packets if packet.HasField("clock_snapshot")]
        names: dict[tuple[int, int], str] = {}
        events = []
        for packet in packets:
            sequence = packet.trusted_packet_sequence_id
            if packet.sequence_flags & 1:
                names = {key: name for key, name in names.items() if key[0] != sequence}
            names |= {(sequence, one.iid): one.name for one in packet.interned_data.debug_annotation_names}
            if packet.HasField("track_descriptor"):
                self.tracks.setdefault(packet.track_descriptor.uuid, packet.track_descriptor.__class__()).MergeFrom(packet.track_descriptor)
            if packet.HasField("track_event"):
                assert packet.track_event.track_uuid in self.tracks, "a track is described before its events"
                fields = {names[sequence, one.name_iid]: value(one) for one in packet.track_event.debug_annotations}
                events.append((packet.timestamp, packet.track_event, fields))
        stacks = defaultdict(list)
        for at, event, fields in sorted(events, key=lambda event: event[0]):
            place = self.place(event.track_uuid)
            shown = tuple(sorted(fields.items()))
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                stacks[event.track_uuid].append((place, event.name, at, shown))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                place, name, begin, shown = stacks[event.track_uuid].pop()
                self.slices[place, name, begin, at - begin, shown] += 1
            elif event.type == TrackEvent.TYPE_INSTANT:
                self.instants[place, event.name, at, shown] += 1
            else:
                kind = event.WhichOneof("counter_value_field")
                self.counts[place, at, getattr(event, kind)] += 1
        assert not any(stacks.values()), "each slice has an end"

    def place(self, uuid: int) -> tuple:
        """Say of which process, thread or group a track is, and its name."""
        track = self.tracks[uuid]
        if not track.parent_uuid:
            return (track.name,)
        above = self.tracks[track.parent_uuid]
        if above.HasField("thread"):
            assert self.tracks[above.parent_uuid].process.pid == above.thread.pid
            return (above.thread.pid % 2**32, above.thread.tid, track.name)
        if above.HasField("process"):
            return (above.process.pid, track.name)
        return (above.name, track.name)


def value(annotation: object) -> object:
    """Return the value of a field."""
    return getattr(annotation, annotation.WhichOneof("value"))


@pytest.fixture(scope="module")
def trace(directory: Path, ingestd: str) -> Read:
    """Export the directory."""
    out = directory.parent / "x.pftrace"
    done = subprocess.run([ingestd, "export", str(directory), "--format", "perfetto", "--out", str(out)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout == "rows=18001\n"
    return Read(out.read_bytes())


def records(directory: Path, source: str) -> list[dict]:
    """Read a source by SQL; NULL is left out, as in the trace."""
    with loom_duckdb.connect() as db:
        found = db.execute(f"SELECT * EXCLUDE (source, ts, addr, dir) FROM loom_scan('{directory}', '{source}')")
        names = [column[0] for column in found.description]
        return [{name: cell for name, cell in zip(names, row, strict=True) if cell is not None} for row in found.fetchall()]


def fields(record: dict) -> tuple:
    """Write the fields of a record as they are below an event."""

    def shown(cell: object) -> object:
        return cell if not isinstance(cell, bytes) else cell.hex() if len(cell) <= 64 else f"{cell[:64].hex()}… ({len(cell)} bytes)"

    return tuple(sorted((name, shown(cell)) for name, cell in record.items() if name != "ts_ns"))


def test_every_record_is_once_in_its_place(directory: Path, trace: Read) -> None:
    slices, instants, pids = Counter(), Counter(), {}
    for record in records(directory, "calls"):
        pids[record["tid"]] = record["pid"]
        place = (record["pid"], record["tid"], "calls")
        slices[place, record["number"], record["ts_ns"] - record["latency_ns"], record["latency_ns"], fields(record)] += 1
    for record in records(directory, "requests"):
        place = (pids[record["tid"]], record["tid"], "requests")
        if "latency_ns" in record:
            slices[place, "requests", record["ts_ns"] - record["latency_ns"], record["latency_ns"], fields(record)] += 1
        else:
            instants[place, "requests", record["ts_ns"], fields(record)] += 1
    for record in records(directory, "exits"):
        place = (record["pid"], "exits") if "pid" in record else ("exits",)
        instants[place, "exit", record["ts_ns"], fields(record)] += 1
    for record in records(directory, "spans"):
        place = (record.get("service", "unknown service"), "spans")
        if record.get("duration_ns", -1) >= 0:
            slices[place, record["name"], record["ts_ns"], record["duration_ns"], fields(record)] += 1
        else:
            instants[place, record["name"], record["ts_ns"], fields(record)] += 1
    for record in records(directory, "logs"):
        instants[(record.get("service", "unknown service"), "logs"), record["body"], record["ts_ns"], fields(record)] += 1
    for record in records(directory, "packet"):
        record["captured"] = round(record["captured"].replace(tzinfo=UTC).timestamp() * 1e9)
        instants[("packet", record.get("interface", "packet")), record.get("protocol", "packet"), record["ts_ns"], fields(record)] += 1
    assert trace.slices == slices
    assert trace.instants == instants


def test_numbers_with_an_index_are_counters(directory: Path, trace: Read) -> None:
    counts = Counter()
    for record in records(directory, "load"):
        for name in ("free_bytes", "busy"):
            if name in record:
                number = record[name]
                counts[("load", name), record["ts_ns"], number if number < 2**63 else float(number)] += 1
    assert trace.counts == counts
    units = {track.name: track.counter.unit for track in trace.tracks.values() if track.HasField("counter")}
    assert units == {"free_bytes": 3, "busy": 0}


def test_the_clock_is_the_wall_clock_and_names_are_those_of_threads(trace: Read) -> None:
    (clock,) = trace.clocks
    assert {one.clock_id for one in clock.clocks} == {1, 6}
    assert len({one.timestamp for one in clock.clocks}) == 1
    threads = {track.thread.tid: track.thread.thread_name for track in trace.tracks.values() if track.HasField("thread")}
    assert threads == {500: "c0", 501: "c1", 777: "c77", 4_000_000_000: "c0"}
    processes = {track.process.pid: track.process.process_name for track in trace.tracks.values() if track.HasField("process")}
    assert processes[500] == "c0"


def test_the_tracks_of_two_exports_are_the_same_and_a_pipe_gets_the_bytes_of_the_file(directory: Path, ingestd: str) -> None:
    command = [ingestd, "export", str(directory), "--format", "perfetto", "--out", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stderr == b"ingestd: rows=18001\n"
    assert done.stdout == (directory.parent / "x.pftrace").read_bytes()


def test_a_window_of_some_sources(directory: Path, ingestd: str) -> None:
    window = ["--from", "2026-03-01T00:00:00.000001Z", "--to", "2026-03-01T00:00:00.000005Z"]
    named = ["--source", "calls", "--source", "load"]
    done = subprocess.run([ingestd, "export", str(directory), "--format", "perfetto", *named, *window, "--out", "-"], capture_output=True)
    read = Read(done.stdout)
    chosen = [[record for record in records(directory, source) if 1000 <= record["ts_ns"] - T0 < 5000] for source in ("calls", "load")]
    assert len(chosen[0]) > 500
    assert read.slices.total() == len(chosen[0])
    assert read.counts.total() == sum(len({"free_bytes", "busy"} & record.keys()) for record in chosen[1])


def test_records_that_a_trace_cannot_hold_are_told(tmp_path: Path, ingestd: str) -> None:
    (tmp_path / "old.csv").write_text("ts,n\n1969-12-31T23:59:59Z,1\n1970-01-01T00:00:01Z,2\n")
    field = '[[source]]\nname = "old"\ntime = "own"\nfield = [{ name = "n", type = "i64" }]\nindex = [{ name = "n", value = "n" }]\n'
    (tmp_path / "fields.toml").write_text(field)
    directory = str(tmp_path / "old.loom")
    load = [
        ingestd,
        "load",
        directory,
        "--source",
        "old",
        "--ts",
        "ts",
        "--fields",
        str(tmp_path / "fields.toml"),
        str(tmp_path / "old.csv"),
    ]
    subprocess.run(load, check=True, capture_output=True)
    out = ["--format", "perfetto", "--out", str(tmp_path / "old.pftrace")]
    done = subprocess.run([ingestd, "export", directory, *out], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "rows=1\n")
    assert "1 records are from before 1970, which a Perfetto trace cannot hold" in done.stderr
    assert Read((tmp_path / "old.pftrace").read_bytes()).counts.total() == 1
    for options, why in [
        (["--source", "old", "--source", "old", "--index", "n"], "index 'n' needs its source; give --source once"),
        (["--source", "odl"], "did you mean 'old'"),
    ]:
        done = subprocess.run([ingestd, "export", directory, *out, *options], capture_output=True, text=True)
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr
