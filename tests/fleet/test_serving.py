"""Hosts start, stop, fail and start again: what their clients see, and what a start refuses."""

import os
import signal
import subprocess
import threading
from pathlib import Path

import duckdb
import pytest

import loom_duckdb

from conftest import TOKEN, CountingProxy, Host, free_port, serve
from daemon import until


def refused(process: subprocess.Popen) -> str:
    """Return what a server that does not start says."""
    output, _ = process.communicate(timeout=30)
    assert process.returncode != 0, output
    return output


def test_a_port_in_use_is_refused_by_name(pair: dict[str, Host], tmp_path: Path) -> None:
    host = pair["left"]
    output = refused(serve(host.directory, tmp_path, host.port))
    assert f"another program listens on port {host.port}" in output
    assert host.ask("SELECT 1") == [(1,)]


def test_a_short_token_is_refused(pair: dict[str, Host], tmp_path: Path) -> None:
    assert "shorter than 16 characters" in refused(serve(pair["left"].directory, tmp_path, free_port(), token="short"))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert "nowhere.loom" in refused(serve(tmp_path / "nowhere.loom", tmp_path, free_port()))


def test_a_missing_program_is_named(pair: dict[str, Host], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).resolve().parents[2] / "sql/serve.sh"
    monkeypatch.setenv("DUCKDB", "no-duckdb")
    output = subprocess.run([script, pair["left"].directory, "1", tmp_path, tmp_path], capture_output=True, text=True).stderr
    assert "cannot find the DuckDB command line 'no-duckdb'" in output


def test_no_list_of_processes_shows_the_token(pair: dict[str, Host]) -> None:
    server = pair["left"].server()
    for pid in (server, pair["left"].process.pid):
        assert TOKEN not in Path(f"/proc/{pid}/cmdline").read_text()
        assert TOKEN not in Path(f"/proc/{pid}/environ").read_text()


def test_the_server_ends_with_its_script_however_that_ends(directories: dict[str, Path], tmp_path: Path) -> None:
    host = Host(directories["left"], tmp_path, free_port())
    server = host.server()
    os.kill(host.process.pid, signal.SIGKILL)
    host.process.wait(20)
    until(lambda: not Path(f"/proc/{server}/exe").exists() or Path(f"/proc/{server}/stat").read_text().split()[2] == "Z")


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
    partly = lenient.quantiles("request", "latency_us", [0.5, 0.9999])
    alone = loom_duckdb.Fleet({"left": pair["left"].address}, TOKEN).quantiles("request", "latency_us", [0.5, 0.9999])
    assert list(partly.missing) == ["mortal"]
    assert partly.table == alone.table
    mortal.start()
    assert strict.quantiles("request", "latency_us", [0.5, 0.9999]).table == before
    mortal.process.terminate()


def test_a_host_that_is_killed_in_mid_query_is_named(pair: dict[str, Host], directories: dict[str, Path], tmp_path: Path) -> None:
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
    mortal.kill()
    asking.join(30)
    assert not asking.is_alive()
    assert list(answers[0].missing) == ["mortal"]
    assert "silent" not in answers[0].missing["mortal"]
    assert answers[0].table.to_pylist() == [{"host": "left", "n": 0}]


def cpu_ticks(pid: int) -> int:
    """Return how long a process has computed."""
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11])


def test_a_host_that_stays_silent_is_named_after_the_timeout(pair: dict[str, Host]) -> None:
    proxy = CountingProxy(pair["left"].port)
    proxy.silent.set()
    fleet = loom_duckdb.Fleet(
        {"left": pair["left"].address, "slow": f"quack:localhost:{proxy.port}"}, TOKEN, allow_missing=True, timeout_s=2
    )
    answer = fleet.sql("SELECT 1 AS one")
    assert answer.missing == {"slow": "silent for 2 s"}
    assert answer.table.to_pylist() == [{"host": "left", "one": 1}]


def test_a_wrong_token_of_one_host_is_named(pair: dict[str, Host]) -> None:
    hosts = {name: host.address for name, host in pair.items()}
    fleet = loom_duckdb.Fleet(hosts, {"left": TOKEN, "right": "another-token-of-the-same-kind"})
    with pytest.raises(loom_duckdb.FleetError, match=r"no answer from right .*: Invalid Input Error: Authentication failed"):
        fleet.sql("SELECT 1")
    with pytest.raises(loom_duckdb.FleetError, match="no token for right; give token="):
        loom_duckdb.Fleet(hosts, {"left": TOKEN})


def test_a_dead_host_is_named_by_its_address_and_answers_after_a_restart(directories: dict[str, Path], tmp_path: Path) -> None:
    host = Host(directories["left"], tmp_path, free_port())
    assert host.ask("SELECT 1") == [(1,)]
    host.kill()
    with pytest.raises(duckdb.Error, match=f"localhost:{host.port}"):
        host.ask("SELECT 1")
    host.start()
    assert host.ask("SELECT 2") == [(2,)]
    host.process.terminate()


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
    # As SECURITY.md has it.
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
