"""Many hosts: the slowest determines the time, failures are named, bytes are counted. Stand-ins replay a real host's answers."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import loom_duckdb
from standins import Answers, Behaviour, Crowd, Recorder, StandIn

from conftest import TOKEN, Host, free_port, requests

HOSTS = 50
QUANTILES = [0.5, 0.9999]
TAIL = [0.9999]


class Recorded:
    """A small host's answers to the questions of these tests, and the directory that they come from."""

    def __init__(self, host: Host) -> None:
        """Ask the host all of them, through a recorder."""
        self.directory = host.directory
        recorder = Recorder(host.port)
        fleet = loom_duckdb.Fleet({"one": recorder.address}, TOKEN)
        ask(fleet)
        fleet.quantiles("request", "latency_us", TAIL)
        recorder.close()
        self.answers: Answers = recorder.answers

    def expected(self, copies: int) -> tuple[list[int], dict[str, object]]:
        """Return the answers over this many copies of the directory: the quantiles, and the aggregate."""
        db = loom_duckdb.connect()
        db.execute(f"CREATE VIEW records AS SELECT latency_us FROM loom_scan('{self.directory}', 'request'), range({copies})")
        (quantiles,) = db.execute(f"SELECT quantile_disc(latency_us, {QUANTILES}) FROM records").fetchone()
        count, total = db.execute("SELECT count(*), sum(latency_us) FROM records").fetchone()
        return quantiles, {"count": count, "sum": total}


def ask(fleet: loom_duckdb.Fleet) -> tuple[loom_duckdb.Answer, loom_duckdb.Answer]:
    """Ask for quantiles, three rounds, and for an aggregate, two."""
    return fleet.quantiles("request", "latency_us", QUANTILES), fleet.aggregate("request", "latency_us")


@pytest.fixture(scope="module")
def recorded(load: Callable[..., Path], hosted: Callable[..., Host]) -> Recorded:
    """Serve 20,000 requests, and record."""
    return Recorded(hosted(load("twenty", requests(1, 20_000), "--index", "latency_us")))


@pytest.fixture
def standins(recorded: Recorded) -> Iterator[Callable[[dict[str, Behaviour]], dict[str, StandIn]]]:
    """Return a function that starts fifty stand-ins, some of which behave in another way."""
    started: list[StandIn] = []

    def start(different: dict[str, Behaviour], delay_s: float = 0) -> dict[str, StandIn]:
        names = [f"host-{number:02}" for number in range(HOSTS)]
        found = {name: StandIn(recorded.answers, different.get(name, Behaviour(delay_s))) for name in names}
        started.extend(found.values())
        return found

    yield start
    with ThreadPoolExecutor(HOSTS) as together:
        list(together.map(StandIn.close, started))


def test_the_time_of_fifty_hosts_is_that_of_the_slowest_and_not_the_sum(recorded: Recorded, standins: Callable) -> None:
    hosts = standins({"host-07": Behaviour(delay_s=1)}, delay_s=0.5)
    fleet = loom_duckdb.Fleet({name: host.address for name, host in hosts.items()}, TOKEN)
    began = time.monotonic()
    quantiles, aggregate = ask(fleet)
    elapsed = time.monotonic() - began
    expected, sums = recorded.expected(HOSTS)
    assert quantiles.table["value"].to_pylist() == expected
    assert {name: aggregate.table[name].to_pylist()[0] for name in sums} == sums
    rounds = 5
    slowest, together = rounds * 1, rounds * ((HOSTS - 1) * 0.5 + 1)
    assert slowest <= elapsed < together / 5, elapsed


def test_each_of_fifty_hosts_sends_as_few_bytes_as_one(standins: Callable) -> None:
    hosts = standins({})
    loom_duckdb.Fleet({name: host.address for name, host in hosts.items()}, TOKEN).quantiles("request", "latency_us", TAIL)
    each = [host.bytes for host in hosts.values()]
    assert 1000 < min(each) <= max(each) < 20_000
    # The number of a question takes one or two bytes.
    assert max(each) - min(each) < 20


def test_every_failed_host_of_fifty_is_named_with_its_reason(recorded: Recorded, standins: Callable) -> None:
    different = {
        "host-03": Behaviour(breaks_at=b"host_snapshot"),
        "host-11": Behaviour(breaks_at=b"host_histogram"),
        "host-29": Behaviour(silent_at=b"host_scan"),
    }
    hosts = {name: host.address for name, host in standins(different).items()}
    hosts["host-40"] = f"quack:localhost:{free_port()}"
    failed = sorted([*different, "host-40"])
    lenient = loom_duckdb.Fleet(hosts, TOKEN, allow_missing=True, timeout_s=30)
    answer = lenient.quantiles("request", "latency_us", QUANTILES)
    assert sorted(answer.missing) == failed
    assert answer.missing["host-29"] == "no answer within 30 s (timeout_s)"
    for name in ("host-03", "host-11", "host-40"):
        assert f"localhost:{hosts[name].rpartition(':')[2]}" in answer.missing[name]
    expected, _ = recorded.expected(HOSTS - len(failed))
    assert answer.table["value"].to_pylist() == expected
    with pytest.raises(loom_duckdb.FleetError, match=r"no answer from host-03 \(quack:localhost:\d+\): .*; host-40 \("):
        loom_duckdb.Fleet(hosts, TOKEN, timeout_s=30).quantiles("request", "latency_us", QUANTILES)


def test_a_host_that_fails_in_the_last_round_costs_the_others_no_round(recorded: Recorded) -> None:
    sent = []
    for breaks_at in (None, b"host_scan"):
        crowd = Crowd(recorded.answers, [Behaviour(), Behaviour(), Behaviour(breaks_at=breaks_at)])
        try:
            hosts = {f"host-{number}": address for number, address in enumerate(crowd.addresses)}
            answer = loom_duckdb.Fleet(hosts, TOKEN, allow_missing=True, timeout_s=120).quantiles("request", "latency_us", TAIL)
            sent.append(crowd.bytes)
        finally:
            crowd.close()
        assert set(answer.missing) == ({"host-2"} if breaks_at else set())
    assert 0 < sent[1] <= sent[0]


def test_quantiles_are_those_of_the_others_if_a_host_with_other_values_fails_in_the_last_round(load: Callable, hosted: Callable) -> None:
    usual = requests(1, 20_000)
    slower = f"SELECT * REPLACE ((latency_us * 100)::UINTEGER AS latency_us) FROM ({usual})"
    directory, failing = (load(name, rows, "--index", "latency_us") for name, rows in [("usual", usual), ("slower", slower)])
    recorder = Recorder(hosted(failing).port)
    loom_duckdb.Fleet({"one": recorder.address}, TOKEN).quantiles("request", "latency_us", QUANTILES)
    recorder.close()
    standin = StandIn(recorder.answers, Behaviour(breaks_at=b"host_scan"))
    fleet = loom_duckdb.Fleet({"usual": hosted(directory).address, "slower": standin.address}, TOKEN, allow_missing=True)
    answer = fleet.quantiles("request", "latency_us", QUANTILES)
    standin.close()
    assert answer.missing.keys() == {"slower"}
    db = loom_duckdb.connect()
    (expected,) = db.execute(f"SELECT quantile_disc(latency_us, {QUANTILES}) FROM loom_scan('{directory}', 'request')").fetchone()
    assert answer.table["value"].to_pylist() == expected


def test_one_percent_of_three_hundred_hosts_may_fail_in_any_round(recorded: Recorded) -> None:
    """`measure.py fleet` asks 10,000."""
    rounds = [b"host_snapshot", b"host_histogram", b"host_scan"]
    failing = {f"host-{number * 100}": Behaviour(breaks_at=rounds[number]) for number in range(3)}
    names = [f"host-{number}" for number in range(300)]
    crowd = Crowd(recorded.answers, [failing.get(name, Behaviour()) for name in names])
    try:
        hosts = dict(zip(names, crowd.addresses, strict=True))
        answer = loom_duckdb.Fleet(hosts, TOKEN, allow_missing=True, timeout_s=120).quantiles("request", "latency_us", QUANTILES)
    finally:
        crowd.close()
    assert answer.missing.keys() == failing.keys()
    expected, _ = recorded.expected(len(names) - len(failing))
    assert answer.table["value"].to_pylist() == expected
