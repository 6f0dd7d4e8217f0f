"""Tests the signed repository of the extension as the page on installing says, with each DuckDB 2, and without `-unsigned`."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import versions
from dist import ANSWER, DEB, DIST, LOAD, ROOT, SLOWEST, TARBALL, the_only, write_rows

import repository

PAGE = (ROOT / "ingestd/docs/install.md").read_text()
# A process of its own for each session: DuckDB keeps repositories and extensions in the home directory.
SESSION = "import duckdb, sys; assert duckdb.__version__ == sys.argv[1]; print(duckdb.connect().execute(sys.stdin.read()).fetchall())"
REFUSED_INSTALL = "Attempting to install an extension file that doesn't have a valid signature"
REFUSED_LOAD = "could not be loaded because its signature is either missing or invalid"
PUBLIC = (DIST / "repository/public-key.pem").read_text()
FINGERPRINT = repository.fingerprint(PUBLIC)
RELEASES = pytest.mark.parametrize("release", versions.RELEASES)


def block(start: str) -> str:
    """Return the page's only block of SQL with this text."""
    [found] = [sql for sql in re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL) if start in sql]
    return found


CREATE = block("WITH PREFIX '/usr/lib/loom/repository'")
USE = block("/var/lib/loom")
CREATE_SERVED = block("USING PUBLIC KEY")


def said(release: str, home: Path, sql: str) -> str:
    """Run a session, and return its output or its error. A slow statement prints its progress before."""
    earlier = {} if release == versions.NEWEST else {"PYTHONPATH": str(ROOT / f".venv/duckdb-{release}")}
    environment = os.environ | earlier | {"HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", SESSION, release], input=sql, capture_output=True, text=True, env=environment)
    return done.stdout or done.stderr


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Unpack the tarball and the Debian package, and return where their extension files are."""
    place = tmp_path_factory.mktemp("packages")
    with tarfile.open(the_only(TARBALL)) as tar:
        tar.extractall(place / "tarball", filter="data")
    subprocess.run(["dpkg-deb", "--extract", the_only(DEB), place / "debian"], check=True)
    [home] = (place / "tarball").iterdir()
    return {"tarball": home / "lib/loom", "debian": place / "debian/usr/lib/loom"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record rows."""
    place = tmp_path_factory.mktemp("recorded")
    write_rows(place / "rows.csv")
    command = [os.environ["INGESTD"], "load", place / "shop.loom", place / "rows.csv", "--fields", place / "rows.toml", *LOAD]
    subprocess.run(command, check=True)
    return place / "shop.loom"


def use(release: str, home: Path, recorded: Path) -> None:
    """Load the installed extension in another session, and query."""
    assert "request" in said(release, home, USE.replace("/var/lib/loom", str(recorded)))
    load = USE.partition(";")[0]
    assert said(release, home, f"{load}; {SLOWEST.format(recorded)}").endswith(f"{[ANSWER]}\n")


@RELEASES
@pytest.mark.parametrize("package", ["tarball", "debian"])
def test_duckdb_installs_from_a_package_as_the_page_says(
    release: str, package: str, packages: dict[str, Path], recorded: Path, tmp_path: Path
) -> None:
    create = CREATE.replace("/usr/lib/loom/repository", str(packages[package] / "repository"))
    assert FINGERPRINT in said(release, tmp_path, create)
    use(release, tmp_path, recorded)
    # An upgrade, and a change of the key.
    [upgrade] = re.findall("`(SET [^`]*FORCE INSTALL [^`]*)`", PAGE)
    assert said(release, tmp_path, upgrade).endswith("[]\n")
    again = create.replace("CREATE", "CREATE OR REPLACE").replace("INSTALL", "FORCE INSTALL")
    assert FINGERPRINT in said(release, tmp_path, again)
    use(release, tmp_path, recorded)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Serve the repository on loopback."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(DIST / "repository"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@RELEASES
def test_duckdb_installs_from_a_web_server_as_the_page_says(release: str, address: str, recorded: Path, tmp_path: Path) -> None:
    create = re.sub("PREFIX '.*?'", f"PREFIX '{address}'", CREATE_SERVED)
    assert FINGERPRINT in said(release, tmp_path, re.sub("KEY '.*?'", f"KEY '{PUBLIC}'", create))
    use(release, tmp_path, recorded)


def flipped(contents: bytes, key: Path) -> bytes:
    """Change one bit in the middle."""
    at = len(contents) // 2
    return contents[:at] + bytes([contents[at] ^ 1]) + contents[at + 1 :]


def unsigned(contents: bytes, key: Path) -> bytes:
    """Return the file as the build writes it."""
    return contents[: -repository.SIGNATURE_BYTES] + bytes(repository.SIGNATURE_BYTES)


@RELEASES
@pytest.mark.parametrize("change", [flipped, unsigned, repository.signed], ids=["flipped", "unsigned", "another-key"])
def test_duckdb_refuses_a_file_that_the_key_did_not_sign(release: str, change, packages: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    subprocess.run(["openssl", "genrsa", "-out", other, "2048"], check=True, capture_output=True)
    theirs, changed = packages["tarball"] / "repository", tmp_path / "repository"
    shutil.copytree(theirs / ".well-known", changed / ".well-known")
    source = packages["tarball"] / versions.folder(release) / repository.NAME
    target = changed / repository.place(source)
    target.parent.mkdir(parents=True)
    target.write_bytes(change(source.read_bytes(), other))
    answer = said(release, tmp_path, CREATE.replace("/usr/lib/loom/repository", str(changed)))
    assert REFUSED_INSTALL in answer, answer


@RELEASES
def test_duckdb_refuses_an_installed_file_that_changed(release: str, packages: dict[str, Path], tmp_path: Path) -> None:
    assert FINGERPRINT in said(release, tmp_path, CREATE.replace("/usr/lib/loom/repository", str(packages["tarball"] / "repository")))
    [installed] = tmp_path.rglob(repository.NAME)
    installed.write_bytes(flipped(installed.read_bytes(), tmp_path))
    assert REFUSED_LOAD in said(release, tmp_path, USE)


@RELEASES
def test_a_path_is_no_repository_and_needs_unsigned(release: str, packages: dict[str, Path], tmp_path: Path) -> None:
    file = packages["tarball"] / versions.folder(release) / repository.NAME
    assert REFUSED_LOAD in said(release, tmp_path, f"LOAD '{file}'")


def test_duckdb_1_knows_no_repositories_of_others(tmp_path: Path) -> None:
    [client] = (ROOT / ".venv").glob("lib/python3*/site-packages/duckdb_cli/duckdb")
    command = [client, "-no-init", "-c", "CREATE EXTENSION REPOSITORY loom WITH PREFIX '/usr/lib/loom/repository'"]
    done = subprocess.run(command, capture_output=True, text=True, env={"HOME": str(tmp_path)})
    assert 'Parser Error: syntax error at or near "EXTENSION"' in done.stderr


def test_a_key_that_duckdb_would_refuse_signs_nothing(tmp_path: Path) -> None:
    long, text = tmp_path / "long.pem", tmp_path / "text.pem"
    subprocess.run(["openssl", "genrsa", "-out", long, "3072"], check=True, capture_output=True)
    text.write_text("not a key")
    for key, message in [(long, "is not RSA with 2048 bits"), (text, "cannot use the key"), (tmp_path / "absent", "cannot use the key")]:
        with pytest.raises(SystemExit, match=message):
            repository.signed(bytes(1024), key)
