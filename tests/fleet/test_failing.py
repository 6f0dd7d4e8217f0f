"""Hosts that are dead, silent, of another version, or not the right ones, as their clients see them."""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import loom_duckdb

from conftest import TOKEN, CountingProxy, Host, askers, cpu_ticks, free_port, requests, serve
from daemon import until


def other_version(found: int) -> str:
    """Return the refusal of the version that follows the version of this build."""
    return f"format version {found + 1}, this build reads versions 4 to {found}; install a release of Loom as new as the one that wrote it"


def test_a_dead_host_is_named_or_missing_in_the_answer_and_answers_after_a_restart(
    pair: dict[str, Host], directories: dict[str, Path], tmp_path: Path
) -> None:
    mortal = Host(directories["right"], tmp_path, free_port())
    hosts = {"left": pair["left"].address, "mortal": mortal.address}
    strict, lenient = loom_duckdb.Fleet(hosts, TOKEN), loom_duckdb.Fleet(hosts, TOKEN, allow_missing=True)
    before = strict.quantiles("request", "latency_us", [0.5, 0.9999]).table
    mortal.kill()
    with pytest.raises(loom_duckdb.FleetError, match=rf"no answer from mortal \({mortal.address}\): .*; Fleet"):
        strict.sql("FROM host_snapshot()")
    with pytest.raises(duckdb.Error, match=f"localhost:{mortal.port}"):
        mortal.ask("SELECT 1")
    partly = lenient.quantiles("request", "latency_us", [0.5, 0.9999])
    alone = loom_duckdb.Fleet({"left": pair["left"].address}, TOKEN).quantiles("request", "latency_us", [0.5, 0.9999])
    assert list(partly.missing) == ["mortal"]
    assert partly.table == alone.table
    again = Host(directories["right"], tmp_path, mortal.port)
    assert strict.quantiles("request", "latency_us", [0.5, 0.9999]).table == before
    assert mortal.ask("SELECT 2") == [(2,)]
    again.stop()


def test_a_host_that_is_killed_in_mid_query_is_named_and_its_next_server_answers(
    pair: dict[str, Host], directories: dict[str, Path], tmp_path: Path
) -> None:
    mortal = Host(directories["right"], tmp_path, free_port())
    fleet = loom_duckdb.Fleet({"left": pair["left"].address, "mortal": mortal.address}, TOKEN, allow_missing=True)
    # Compares 400,000 records with as many on the host that dies, and a few on the other.
    many = "host_scan('request')"
    question = f"""SELECT count(*) AS n FROM {many} AS a, (SELECT id FROM {many} WHERE {{}}) AS b WHERE a.id + b.id = -1"""
    names = {"left": "id < 10", "mortal": "true"}
    answers: list[loom_duckdb.Answer] = []
    asking = threading.Thread(target=lambda: answers.append(fleet._ask(lambda name: question.format(names[name]), list(names))[0]))
    server = mortal.server()
    idle = cpu_ticks(server)
    asking.start()
    until(lambda: cpu_ticks(server) > idle + 20)
    os.kill(server, 9)
    asking.join(30)
    assert not asking.is_alive()
    assert list(answers[0].missing) == ["mortal"]
    assert "silent" not in answers[0].missing["mortal"]
    assert answers[0].table.to_pylist() == [{"host": "left", "n": 0}]
    mortal.await_line(f"at {mortal.address}")
    assert fleet.sql("SELECT count(*) AS n FROM host_scan('request')").table["n"].to_pylist() == [400_000, 400_000]
    mortal.stop()


def forge_version(directory: Path, version: int) -> None:
    """Write another format version into `loom.json` and its copy, with the right checksum."""
    for name in ("loom.json", "loom.json.copy"):
        content = json.loads((directory / name).read_text())
        del content["checksum"]
        content["format"] = version
        content["checksum"] = crc32c(json.dumps(content, separators=(",", ":")).encode())
        (directory / name).with_suffix(".new").write_text(json.dumps(content, indent=2) + "\n")
        (directory / name).with_suffix(".new").rename(directory / name)


def crc32c(data: bytes) -> int:
    """Return the checksum of FORMAT.md."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return crc ^ 0xFFFFFFFF


def test_a_directory_of_another_format_version_is_not_served(directories: dict[str, Path], tmp_path: Path) -> None:
    copy = shutil.copytree(directories["left"], tmp_path / "copy.loom")
    found = json.loads((copy / "loom.json").read_text())["format"]
    forge_version(copy, found + 1)
    with serve(copy, tmp_path, free_port()) as process:
        _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert f"copy.loom/loom.json has {other_version(found)}" in said


def test_a_host_whose_directory_got_another_format_version_is_named_with_versions_and_remedy(
    pair: dict[str, Host], directories: dict[str, Path], tmp_path: Path
) -> None:
    copy = shutil.copytree(directories["right"], tmp_path / "copy.loom")
    found = json.loads((copy / "loom.json").read_text())["format"]
    host = Host(copy, tmp_path, free_port())
    hosts = {"left": pair["left"].address, "newer": host.address}
    assert loom_duckdb.Fleet(hosts, TOKEN).aggregate("request", "latency_us").table["count"].to_pylist() == [800_000]
    forge_version(copy, found + 1)
    said = rf"no answer from newer .*has {other_version(found)}"
    with pytest.raises(loom_duckdb.FleetError, match=said):
        loom_duckdb.Fleet(hosts, TOKEN).aggregate("request", "latency_us")
    answer = loom_duckdb.Fleet(hosts, TOKEN, allow_missing=True).aggregate("request", "latency_us")
    assert list(answer.missing) == ["newer"]
    assert answer.table["count"].to_pylist() == [400_000]
    host.stop()


def test_a_host_that_stays_silent_is_named_after_the_timeout(pair: dict[str, Host]) -> None:
    proxy = CountingProxy(pair["left"].port)
    proxy.silent.set()
    fleet = loom_duckdb.Fleet(
        {"left": pair["left"].address, "slow": f"quack:localhost:{proxy.port}"}, TOKEN, allow_missing=True, timeout_s=8
    )
    # Enough for a host that answers on a busy machine.
    answer = fleet.sql("SELECT 1 AS one")
    assert answer.missing == {"slow": "no answer within 8 s (timeout_s)"}
    assert answer.table.to_pylist() == [{"host": "left", "one": 1}]


def test_a_program_ends_in_order_while_a_host_is_silent() -> None:
    ended = subprocess.run([sys.executable, Path(__file__).with_name("silent_at_exit.py")], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no answer within 1 s (timeout_s)" in ended.stdout


def test_a_silent_host_holds_nothing_after_the_answer(pair: dict[str, Host]) -> None:
    proxy = CountingProxy(pair["left"].port)
    proxy.silent.set()
    fleet = loom_duckdb.Fleet({"slow": f"quack:localhost:{proxy.port}"}, TOKEN, timeout_s=1)
    others = askers()
    with pytest.raises(loom_duckdb.FleetError, match=r"no answer within 1 s \(timeout_s\)"):
        fleet.sql("SELECT 1")
    assert set(askers()) <= set(others)
    proxy.silent.clear()
    fleet.timeout_s = 30
    assert fleet.sql("SELECT 1 AS one").table.num_rows == 1


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("SELECT nope FROM host_scan('request')", 'Referenced column "nope" not found'),
        ("SELEC 1", "cannot answer the question: syntax error"),
        ("FROM host_scan('requests')", r"unknown source 'requests'.*'request'.*host_sources\(\) lists the sources"),
    ],
)
def test_a_mistake_of_the_question_is_reported_once_and_blames_no_host(
    pair: dict[str, Host], fleet: loom_duckdb.Fleet, question: str, said: str
) -> None:
    lenient = loom_duckdb.Fleet(fleet.hosts, TOKEN, allow_missing=True)
    for each in (fleet, lenient):
        with pytest.raises(loom_duckdb.FleetError, match=f"^every host refuses the question: .*{said}") as raised:
            each.sql(question)
        assert "quack:" not in str(raised.value)


def test_a_question_that_one_host_refuses_names_this_host(pair: dict[str, Host], fleet: loom_duckdb.Fleet) -> None:
    # The question fails on the host that has this request, because no request is as slow on the other.
    (least, host), (most, _) = sorted(
        (each.ask("SELECT max(latency_us) FROM host_scan('request')")[0][0], name) for name, each in pair.items()
    )
    question = f"SELECT CASE WHEN max(latency_us) > {least} THEN error('too slow') ELSE '' END AS x FROM host_scan('request')"
    assert least < most
    answer = loom_duckdb.Fleet(fleet.hosts, TOKEN, allow_missing=True).sql(question)
    assert answer.table["host"].to_pylist() == [host]
    with pytest.raises(loom_duckdb.FleetError, match=r"no answer from \w+ \(quack:localhost:\d+\): .*too slow; Fleet"):
        fleet.sql(question)


def test_a_host_without_the_source_or_the_index_is_missing_in_the_answer_of_the_others(
    pair: dict[str, Host], load: Callable[..., Path], hosted: Callable[..., Host], ingestd: str
) -> None:
    plain, empty = load("plain", requests(1, 1000)), load("empty", requests(1, 1000)).with_name("new.loom")
    (empty.parent / "other.toml").write_text("[[source]]\nname = 'other'\n")
    subprocess.run([ingestd, "source", "add", "--fields", empty.parent / "other.toml", empty], check=True, capture_output=True)
    hosts = {name: host.address for name, host in pair.items()}
    fleet = loom_duckdb.Fleet({"plain": hosted(plain).address, "new": hosted(empty).address, **hosts}, TOKEN, allow_missing=True)
    alone = loom_duckdb.Fleet(hosts, TOKEN)
    for ask in (lambda fleet: fleet.quantiles("request", "latency_us", [0.5]), lambda fleet: fleet.aggregate("request", "latency_us")):
        found = ask(fleet)
        assert found.table == ask(alone).table
        assert found.missing == {
            "new": "no source 'request'; sql('FROM host_sources()') lists those that exist",
            "plain": "no index 'latency_us' of 'request'; sql('FROM host_indexes()') lists those that exist",
        }
    with pytest.raises(loom_duckdb.FleetError, match="no source 'requests' on left, new, plain, right"):
        fleet.aggregate("requests", "latency_us")


def test_a_wrong_token_of_one_host_is_named(pair: dict[str, Host]) -> None:
    hosts = {name: host.address for name, host in pair.items()}
    fleet = loom_duckdb.Fleet(hosts, {"left": TOKEN, "right": "another-token-of-the-same-kind"})
    with pytest.raises(loom_duckdb.FleetError, match=r"no answer from right .*: Invalid Input Error: Authentication failed"):
        fleet.sql("SELECT 1")
    with pytest.raises(loom_duckdb.FleetError, match="no token for right; give token="):
        loom_duckdb.Fleet(hosts, {"left": TOKEN})


def certificate(place: Path) -> tuple[Path, Path]:
    """Make a certificate for localhost, and its key."""
    key, made = place / "key.pem", place / "certificate.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", made, "-days", "2",
               "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]  # fmt: skip
    subprocess.run(request, check=True, capture_output=True)
    return made, key


@pytest.mark.skipif("CI" not in os.environ and not Path("/usr/bin/stunnel4").exists(), reason="stunnel4 is missing")
def test_tls_by_stunnel_encrypts_and_only_a_trusted_certificate_is_accepted(pair: dict[str, Host], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    made, key = certificate(tmp_path)
    stranger, _ = certificate(tmp_path / "other")
    port = free_port()
    # The settings of the page on security.
    settings = (
        f"foreground = yes\npid =\n[loom]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{pair['left'].port}\ncert = {made}\nkey = {key}\n"
    )
    (tmp_path / "stunnel.conf").write_text(settings)
    with subprocess.Popen(["stunnel4", tmp_path / "stunnel.conf"], stderr=subprocess.DEVNULL) as tunnel:
        try:
            hosts = {"left": f"quack:localhost:{port}"}
            fleet = loom_duckdb.Fleet(hosts, TOKEN, tls=True, ca_cert_file=str(made))

            def answers() -> bool:
                try:
                    return fleet.sql("SELECT 1 AS one").table.to_pylist() == [{"host": "left", "one": 1}]
                except loom_duckdb.FleetError:
                    return False

            until(answers)
            with pytest.raises(loom_duckdb.FleetError, match="no answer from left"):
                loom_duckdb.Fleet(hosts, TOKEN, tls=True, ca_cert_file=str(stranger)).sql("SELECT 1")
            with pytest.raises(loom_duckdb.FleetError, match="no answer from left"):
                loom_duckdb.Fleet(hosts, TOKEN).sql("SELECT 1")
        finally:
            tunnel.kill()
