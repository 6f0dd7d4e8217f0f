"""The statements of `sql/docs/hosts.md` run as they are written, except for the ports."""

import contextlib
import os
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from conftest import DUCKDB, ROOT, TOKEN, Host, client, extension_folders

PAGE = (ROOT / "sql/docs/hosts.md").read_text()


def here(text: str, pair: dict[str, Host]) -> str:
    """Put the ports and the token of the test in place of the page's."""
    addresses = {"quack:localhost:9494": pair["left"].address, "quack:localhost:9495": pair["right"].address}
    for address, real in addresses.items():
        text = text.replace(address, real)
    return text.replace("a-token-of-your-own", TOKEN)


def test_the_statements_of_the_page_run(pair: dict[str, Host]) -> None:
    statements = here("\n".join(re.findall(r"```duckdb\n(.*?)```", PAGE, re.DOTALL)), pair)
    statements = statements.replace(".read sql/fleet.sql\n", (ROOT / "sql/fleet.sql").read_text())
    db = client()
    assert "fleet_near" in statements
    for statement in db.extract_statements(statements):
        rows = db.execute(statement).to_arrow_table()
        if statement.query.strip().startswith(("FROM", "SELECT")):
            assert rows.num_rows > 0, statement.query


def test_the_python_of_the_page_runs(pair: dict[str, Host]) -> None:
    text = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    assert "Fleet(" in text
    names: dict[str, object] = {}
    exec(here(text, pair), names)  # noqa: S102
    assert len(names["fleet"].hosts) == 2


def test_the_spark_of_the_page_runs(pair: dict[str, Host], spark: SparkSession, tmp_path: Path) -> None:
    text = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    (tmp_path / "token").write_text(TOKEN + "\n")
    names: dict[str, object] = {"spark": spark}
    exec(here(text, pair).replace('"token_file": "token"', f'"token_file": "{tmp_path}/token"'), names)  # noqa: S102
    assert names["requests"].rdd.getNumPartitions() == 2


def test_the_page_names_every_macro() -> None:
    for script in ("host.sql", "fleet.sql"):
        macros = re.findall(r"MACRO (\w+)\([^;]*?\) AS TABLE", (ROOT / "sql" / script).read_text())
        assert len(macros) > 4
        for name in macros:
            assert f"`{name}" in PAGE, name


def three_free_ports() -> int:
    """Find the first of three ports in a row on which nothing listens, below those that the kernel gives to others."""
    for first in range(20_000, 30_000, 3):
        with contextlib.suppress(OSError), contextlib.ExitStack() as bound:
            for port in range(first, first + 3):
                bound.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("no three ports in a row are free")


def example_of_three(place: Path, folders: Sequence[Path], **variables: str) -> subprocess.CompletedProcess:
    """Run the example with its files in a place."""
    environment = {**os.environ, "DUCKDB": DUCKDB, "PORT": str(three_free_ports()), "TMPDIR": str(place), **variables}
    command = [ROOT / "sql/fleet_of_three.sh", *folders]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_the_example_of_three_shows_why_a_server_does_not_start(ingestd: str, tmp_path: Path) -> None:
    ended = example_of_three(tmp_path, [tmp_path / "nothing"], INGESTD=ingestd)
    assert ended.returncode == 1
    assert "nothing' is not a folder; give one that has files of extensions" in ended.stderr
    ended = example_of_three(tmp_path, [], INGESTD=str(tmp_path / "nowhere"))
    assert (ended.returncode, ended.stderr) == (1, f"fleet_of_three: no program '{tmp_path}/nowhere'; set INGESTD to its path\n")
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_three_finds_the_slow_host(ingestd: str, tmp_path: Path) -> None:
    ended = example_of_three(tmp_path, extension_folders(), INGESTD=ingestd)
    assert ended.returncode == 0, ended
    found = re.findall(r"(ada|bob|eve) +│ (\d+) ", ended.stdout)
    assert found == [("eve", "200")], ended.stdout
    # The example ends the processes that it started, and leaves no file.
    assert list(tmp_path.iterdir()) == []
