"""`ingestd serve`: the starts that it refuses, the limits of its server, and the events after the server ends."""

import os
import re
import signal
import socket
import subprocess
import threading
from pathlib import Path

import duckdb
import pytest

from conftest import TOKEN, Host, cpu_ticks, free_port, serve
from daemon import until

ENDLESS = "SELECT count(*) FROM host_scan('request') AS a, host_scan('request') AS b WHERE a.id + b.id = -1"


def refused(process: subprocess.Popen) -> str:
    """Return the message of a host that does not start."""
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1, said
    return said


def test_a_second_host_on_a_port_is_refused_and_the_first_answers(pair: dict[str, Host], tmp_path: Path) -> None:
    host = pair["left"]
    said = refused(serve(host.directory, tmp_path, host.port))
    assert f"another 'ingestd serve' has port {host.port}; stop it, or choose another port" in said
    assert host.ask("SELECT 1") == [(1,)]


def test_a_port_on_which_another_program_listens_is_refused(pair: dict[str, Host], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        said = refused(serve(pair["left"].directory, tmp_path, port))
    assert f"another program listens on port {port}; stop it, or choose another port" in said


def test_an_address_that_is_not_on_loopback_is_refused(pair: dict[str, Host], tmp_path: Path) -> None:
    command = [os.environ["INGESTD"], "serve", pair["left"].directory, "--listen", "0.0.0.0:9494", "--token-file", tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "listen on localhost:9494 behind a proxy with TLS" in ended.stderr


def test_a_short_token_and_one_that_others_can_read_are_refused(pair: dict[str, Host], tmp_path: Path) -> None:
    directory = pair["left"].directory
    assert "is shorter than 16 characters" in refused(serve(directory, tmp_path, free_port(), token="short"))
    assert "(mode 0644); run 'chmod o= " in refused(serve(directory, tmp_path, free_port(), mode=0o644))


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    said = refused(serve(tmp_path / "nowhere.loom", tmp_path, free_port()))
    assert "nowhere.loom is not a Loom directory: it does not exist" in said


def test_a_missing_program_and_a_missing_extension_are_named(pair: dict[str, Host], tmp_path: Path) -> None:
    directory, nothing = pair["left"].directory, tmp_path / "nothing"
    said = refused(serve(directory, tmp_path, free_port(), duckdb=nothing))
    assert f"cannot open the DuckDB command line '{nothing}'; give its path with --duckdb: No such file or directory" in said
    said = refused(serve(directory, tmp_path, free_port(), folders=[nothing]))
    assert f"--extensions '{nothing}' is not a folder; give one that has files of extensions" in said
    assert "loom.duckdb_extension is missing; give the folder" in refused(serve(directory, tmp_path, free_port(), folders=[tmp_path]))


def test_a_memory_in_which_no_server_starts_is_refused(pair: dict[str, Host], tmp_path: Path) -> None:
    for memory in ("0", "31MiB"):
        with serve(pair["left"].directory, tmp_path, free_port(), f"--memory={memory}") as process:
            _, said = process.communicate(timeout=30)
        assert process.returncode == 2
        assert f"invalid value '{memory}' for '--memory <SIZE>': DuckDB needs more; give at least 32MiB" in said


def test_nothing_shows_the_token(pair: dict[str, Host]) -> None:
    host = pair["left"]
    for pid in (host.server(), host.process.pid):
        assert TOKEN not in Path(f"/proc/{pid}/cmdline").read_text()
        assert TOKEN not in Path(f"/proc/{pid}/environ").read_text()
    assert TOKEN not in "".join(host.log)


def test_a_service_manager_learns_that_it_serves(directories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        host = Host(directories["left"], tmp_path, free_port())
        assert f"READY=1\nSTATUS=serving {host.directory} at {host.address}" in manager.recv(4096).decode()
        assert "NOTIFY_SOCKET" not in Path(f"/proc/{host.server()}/environ").read_text()
        os.kill(host.server(), signal.SIGKILL)
        assert "STATUS=starting again" in manager.recv(4096).decode()
        assert "STATUS=serving" in manager.recv(4096).decode()
        host.stop()
        assert "STOPPING=1" in manager.recv(4096).decode()


def test_a_host_that_is_stopped_leaves_nothing(directories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    host = Host(directories["left"], tmp_path, free_port())
    server = host.server()
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    host.stop()
    assert not Path(f"/proc/{server}").exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_host_in_another_time_zone_means_the_same_times_as_the_others(
    pair: dict[str, Host], directories: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, program = tmp_path / "etc", tmp_path / "ingestd"
    elsewhere.mkdir()
    (elsewhere / "localtime").symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert (elsewhere / "localtime").is_file()
    program.write_text(
        "#!/bin/sh\nexec unshare --map-root-user --mount sh -c 'mount -t overlay overlay -o lowerdir="
        f'{elsewhere}:/etc /etc && exec "$@"\' sh {os.environ["INGESTD"]} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("INGESTD", str(program))
    host = Host(directories["left"], tmp_path, free_port())
    assert Path(f"/proc/{host.process.pid}/root/etc/localtime").readlink() == (elsewhere / "localtime").readlink()
    for question in ("SELECT count(*) FROM host_scan('request', t_from := '2026-03-01 00:00:01')",
                     "SELECT DISTINCT epoch_us(date_trunc('day', ts)) FROM host_scan('request')",
                     "SELECT min(ts)::VARCHAR FROM host_scan('request')"):  # fmt: skip
        assert host.ask(question) == pair["left"].ask(question)
    host.stop()


def ask_in_vain(host: Host, question: str) -> tuple[threading.Thread, list[str]]:
    """Ask from another thread a question that fails, and wait until the server computes. The list gets the error."""
    errors: list[str] = []

    def ask() -> None:
        try:
            errors.append(str(host.ask(question)))
        except duckdb.Error as error:
            errors.append(str(error))

    server = host.server()
    idle = cpu_ticks(server)
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    until(lambda: cpu_ticks(server) > idle + 20)
    return thread, errors


def test_the_server_ends_with_its_supervisor_in_mid_query_too(directories: dict[str, Path], tmp_path: Path) -> None:
    host = Host(directories["left"], tmp_path, free_port())
    server = host.server()
    ask_in_vain(host, ENDLESS)
    host.kill()
    until(lambda: not Path(f"/proc/{server}/exe").exists() or Path(f"/proc/{server}/stat").read_text().split()[2] == "Z")


def test_a_server_that_is_killed_is_started_again(directories: dict[str, Path], tmp_path: Path) -> None:
    host = Host(directories["left"], tmp_path, free_port())
    first = host.server()
    for pause in (1, 2):
        os.kill(host.server(), signal.SIGKILL)
        assert f"the server ended (signal: 9 (SIGKILL)); it starts again in {pause} s" in host.await_line("ERROR")
        host.await_line(f"at {host.address}")
        assert host.ask("SELECT count(*) FROM host_scan('request')") == [(400_000,)]
    assert host.server() != first
    host.stop()


def test_a_question_that_never_ends_is_ended_with_the_server_and_the_next_is_answered(directories: dict[str, Path], tmp_path: Path) -> None:
    host = Host(directories["left"], tmp_path, free_port(), "--cpu-seconds=1")
    thread, errors = ask_in_vain(host, ENDLESS)
    assert re.search(r"it computed for \d s without a pause; --cpu-seconds allows 1", host.await_line("ERROR"))
    thread.join(30)
    assert len(errors) == 1
    assert f"localhost:{host.port}" in errors[0]
    host.await_line(f"at {host.address}")
    assert host.ask("SELECT 1") == [(1,)]
    host.stop()


def test_a_question_that_needs_too_much_memory_fails_and_the_next_is_answered(directories: dict[str, Path], tmp_path: Path) -> None:
    host = Host(directories["left"], tmp_path, free_port(), "--memory=32MiB", "--threads=1")
    server = host.server()
    with pytest.raises(duckdb.Error, match="failed to allocate data"):
        host.ask("SELECT count(DISTINCT concat(id, op, ts)) FROM host_scan('request')")
    assert host.ask("SELECT count(*) FROM host_scan('request')") == [(400_000,)]
    assert host.server() == server
    limit = re.search(r"Max data size +(\d+)", Path(f"/proc/{server}/limits").read_text())
    assert int(limit[1]) == (32 << 20) + (3 << 30)
    host.stop()


def test_the_recording_comes_first(pair: dict[str, Host]) -> None:
    # 19 is the lowest priority.
    assert os.getpriority(os.PRIO_PROCESS, pair["left"].server()) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
