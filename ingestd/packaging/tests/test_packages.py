"""Tests each package as people install it, in an empty place: a fresh Debian, a folder, a virtual environment."""

import functools
import hashlib
import json
import lzma
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
import versions
from dist import ANSWER, DEB, DIST, LOAD, ROOT, ROWS, SLOWEST, TARBALL, WHEEL, missing, the_only, write_rows

import pages

PUSH = """import sys, loom_ring
loom = loom_ring.connect(sys.argv[1])
loom.push(loom.define('[[source]]\\nname = "ticks"\\n[[source.field]]\\nname = "n"\\ntype = "u64"'), bytes(8))
print(loom.sync())"""


def ask(extension: Path, directory: Path) -> tuple:
    """Query with the Python package of the newest DuckDB 2."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        db.execute(f"LOAD '{extension}'")
        return db.execute(SLOWEST.format(directory)).fetchone()


def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "the condition did not come about"
        time.sleep(0.05)


class Debian:
    """A fresh Debian below a folder. Its programs see only its own files and this machine's shared memory."""

    def __init__(self, root: Path) -> None:
        """Create it."""
        self.root = root
        release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
        subprocess.run(["debootstrap", "--variant=minbase", release["VERSION_CODENAME"], root], check=True, capture_output=True)

    def command(self, *command: str | Path, user: str = "root:root") -> list[str]:
        """Return the command that runs a program in it."""
        mounts = 'mount --bind /dev/shm "$0/dev/shm" && mount -t proc proc "$0/proc" && exec chroot "$@"'
        return ["unshare", "--mount", "sh", "-c", mounts, self.root, f"--userspec={user}", self.root, *command]

    def run(self, *command: str | Path, user: str = "root:root") -> str:
        """Run a program in it to its end, and return its output."""
        done = subprocess.run(self.command(*command, user=user), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    """Install the package into a fresh Debian; dpkg checks its dependencies."""
    if os.getuid() != 0:
        pytest.skip("only root can install a package")
    if absent := missing("debootstrap", "unshare", "chroot"):
        pytest.skip(f"{absent} missing")
    machine = Debian(tmp_path_factory.mktemp("debian") / "root")
    package = the_only(DEB)
    shutil.copy(package, machine.root)
    machine.run("dpkg", "--install", f"/{package.name}")
    return machine


@pytest.fixture
def recording(debian: Debian) -> Iterator[Path]:
    """Run the daemon as the unit does, and return the path of its directory on this machine."""
    unit = (debian.root / "usr/lib/systemd/system/loom.service").read_text()
    [start] = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    directory = debian.root / "var/lib/loom"
    debian.run("install", "--directory", "--owner=loom", "--group=loom", "/var/lib/loom")
    with subprocess.Popen(debian.command(*start.split(), user="loom:loom")) as daemon:
        until(lambda: daemon.poll() is None and (directory / "ingest.sock").exists())
        yield directory
        daemon.terminate()
        assert daemon.wait() == 0


def test_the_debian_package_records_and_answers_members_of_its_group(debian: Debian, recording: Path) -> None:
    write_rows(debian.root / "rows.csv")
    member = "nobody:loom"
    debian.run("ingestd", "load", "/var/lib/loom", "/rows.csv", "--fields", "/rows.toml", *LOAD, user=member)
    [client] = (ROOT / ".venv").glob("lib/python3*/site-packages/duckdb_cli/duckdb")
    shutil.copy(client, debian.root / "usr/bin")
    sql = "LOAD '/usr/lib/loom/duckdb-v1/loom.duckdb_extension';" + SLOWEST.format("/var/lib/loom")
    assert debian.run("duckdb", "-unsigned", "-no-init", "-noheader", "-csv", "-c", sql, user=member).strip() == ",".join(map(str, ANSWER))
    assert ask(debian.root / "usr/lib/loom/duckdb-v2/loom.duckdb_extension", recording) == ANSWER
    with pytest.raises(AssertionError, match="may not push"):
        debian.run("ingestd", "load", "/var/lib/loom", "/rows.csv", "--fields", "/rows.toml", *LOAD, user="nobody:nogroup")


def test_the_debian_package_names_the_libraries_that_it_needs(debian: Debian) -> None:
    depends = debian.run("dpkg-query", "--show", "--showformat=${Depends}", "loom")
    assert "libc6 (>= 2." in depends, depends
    recommends = debian.run("dpkg-query", "--show", "--showformat=${Recommends}", "loom")
    assert recommends == "tcpdump"
    needed = debian.run("ldd", "/usr/bin/ingestd")
    assert "not found" not in needed
    for library, package in [("libc.so.6", "libc6"), ("libgcc_s.so.1", "libgcc-s1")]:
        assert (library in needed) == (package in depends), (needed, depends)


def test_man_pages_and_completions_are_of_this_program(debian: Debian) -> None:
    assert debian.run("ingestd", "--version").startswith("ingestd ")
    for page, part in [
        ("man1/ingestd.1", "ingestd\\-run(1)"),
        ("man1/ingestd-run.1", "\\-\\-config"),
        ("man1/ingestd-record.1", "ingestd\\-record\\-syscalls(1)"),
        ("man1/ingestd-record-syscalls.1", "\\-\\-comm"),
        ("man1/ingestd-record-packets.1", "tcpdump"),
        ("man1/ingestd-record-blockio.1", "\\-\\-device"),
        ("man1/ingestd-record-pagecache.1", "page cache"),
        ("man1/ingestd-record-command.1", "\\-\\-format"),
        ("man5/loom.toml.5", "max_bytes"),
    ]:
        assert part in debian.run("zcat", f"/usr/share/man/{page}.gz"), page
    completed = "COMP_WORDS=(ingestd va); COMP_CWORD=1; _clap_complete_ingestd ingestd va ingestd; echo $COMPREPLY"
    source = "source /usr/share/bash-completion/completions/ingestd"
    assert debian.run("bash", "-c", f"{source}; {completed}").strip() == "validate"


@pytest.mark.parametrize("unit", ["loom.service", "loom-serve@9494.service"])
def test_the_unit_is_one_that_systemd_accepts(debian: Debian, unit: str) -> None:
    if absent := missing("systemd-analyze"):
        pytest.skip(f"{absent} missing")
    checked = subprocess.run(["systemd-analyze", f"--root={debian.root}", "verify", unit], capture_output=True, text=True)
    # The fresh Debian has no other units and no manual reader. What is wrong with this unit has a line, or names its program.
    faults = re.findall(r".*loom[^ ]*\.service:\d+:.*|.*not executable.*", checked.stderr)
    assert faults == []


def test_the_unit_reaches_loopback_and_with_the_drop_in_the_networks_that_it_names(tmp_path: Path) -> None:
    if absent := missing("systemd-analyze"):
        pytest.skip(f"{absent} missing")
    packaging, units = ROOT / "ingestd/packaging", tmp_path / "etc/systemd/system"
    (units / "loom.service.d").mkdir(parents=True)
    shutil.copy(packaging / "loom.service", units)
    assert "only localhost" in allowed_networks(tmp_path)
    shutil.copy(packaging / "network.conf", units / "loom.service.d")
    assert "allow list with non-localhost entries" in allowed_networks(tmp_path)


def allowed_networks(root: Path) -> str:
    """Return systemd's verdict on the addresses that the unit may reach."""
    command = ["systemd-analyze", "security", "--offline=true", f"--root={root}", "--json=short", "loom.service"]
    checks = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    [check] = [check for check in checks if check["name"] == "IPAddressDeny="]
    return check["description"]


def test_the_debian_package_serves_what_it_records(debian: Debian, recording: Path) -> None:
    write_rows(debian.root / "rows.csv")
    served = ["--fields", "/rows.toml", "--source", "served", "--ts", "ts"]
    debian.run("ingestd", "load", "/var/lib/loom", "/rows.csv", *served, user="loom:loom")
    # The unit needs these files beside the package.
    installed, [packages] = debian.root / "usr/local/lib/loom", (ROOT / ".fleet-venv").glob("lib/python3*/site-packages")
    installed.mkdir()
    for name in ("quack", "httpfs"):
        [extension] = packages.glob(f"duckdb_extension_{name}/extensions/v*/{name}.duckdb_extension")
        shutil.copy(extension, installed)
    shutil.copy(packages / "duckdb_cli/duckdb", debian.root / "usr/local/bin")
    (debian.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (debian.root / "credentials").mkdir()
    (debian.root / "credentials/token").write_text("a-token-for-the-package\n")
    debian.run("chown", "nobody:nogroup", "/credentials/token")
    debian.run("chmod", "400", "/credentials/token")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    unit = (debian.root / "usr/lib/systemd/system/loom-serve@.service").read_text()
    [start] = re.findall("^ExecStart=(.*)$", unit, re.MULTILINE)
    words = start.replace("%i", str(port)).replace("${CREDENTIALS_DIRECTORY}", "/credentials").split()
    # The group reads the records, and the user owns none of them.
    with subprocess.Popen(debian.command(*words, user="nobody:loom"), stderr=subprocess.PIPE, text=True) as host:
        log = []
        while f" at quack:localhost:{port}" not in "".join(log):
            log.append(host.stderr.readline())
            assert log[-1], log
        sql = f"""LOAD '/usr/local/lib/loom/httpfs.duckdb_extension'; LOAD '/usr/local/lib/loom/quack.duckdb_extension';
            FROM quack_query('quack:localhost:{port}', 'SELECT count(*) FROM host_scan(''served'')', token := 'a-token-for-the-package')"""
        asked = debian.run("/usr/local/bin/duckdb", "-unsigned", "-no-init", "-noheader", "-csv", "-c", sql, user="nobody:nogroup")
        host.terminate()
        assert host.wait() == 0
    assert asked.strip() == str(ROWS)


def test_a_removed_package_leaves_the_records_and_a_purged_one_no_configuration(debian: Debian) -> None:
    records = debian.root / "var/lib/loom/loom.json"
    records.parent.mkdir(parents=True, exist_ok=True)
    records.touch()
    debian.run("dpkg", "--remove", "loom")
    assert not (debian.root / "usr/bin/ingestd").exists()
    assert (debian.root / "etc/loom/loom.toml").exists()
    debian.run("dpkg", "--purge", "loom")
    assert not (debian.root / "etc/loom").exists()
    assert records.exists()
    debian.run("dpkg", "--install", f"/{the_only(DEB).name}")


def test_the_tarball_works_where_it_is_unpacked(tmp_path: Path) -> None:
    with tarfile.open(the_only(TARBALL)) as tar:
        names = {(entry.uname, entry.mtime) for entry in tar}
        tar.extractall(tmp_path, filter="data")
    assert len(names) == 1, "one owner and one time, whoever built it"
    [home] = tmp_path.iterdir()
    write_rows(tmp_path / "rows.csv")
    directory = tmp_path / "shop.loom"
    fields = ["--fields", tmp_path / "rows.toml"]
    subprocess.run([home / "bin/ingestd", "load", directory, tmp_path / "rows.csv", *fields, *LOAD], check=True, env={})
    assert ask(home / "lib/loom/duckdb-v2/loom.duckdb_extension", directory) == ANSWER


def test_no_link_of_an_installed_page_is_dead(tmp_path: Path) -> None:
    with tarfile.open(the_only(TARBALL)) as tar:
        tar.extractall(tmp_path, filter="data")
    installed = sorted(tmp_path.rglob("*.md"))
    assert any(page.match("doc/loom/README.md") for page in installed)
    assert list(tmp_path.glob("*/share/doc/loom/html/index.html"))
    assert [fault for page in installed for fault in pages.dead(page)] == []


def test_the_wheels_description_needs_no_other_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(the_only(WHEEL)) as wheel:
        [metadata] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        wheel.extract(metadata, tmp_path)
    description = (tmp_path / metadata).read_text().partition("\n\n")[2]
    assert description.startswith("# "), description
    (tmp_path / "README.md").write_text(description)
    assert list(pages.dead(tmp_path / "README.md")) == []


def test_the_tarballs_library_records_from_c_and_python(tmp_path: Path) -> None:
    if absent := missing("cc"):
        pytest.skip(f"{absent} missing")
    with tarfile.open(the_only(TARBALL)) as tar:
        tar.extractall(tmp_path, filter="data")
    [home] = tmp_path.iterdir()
    example, libraries = tmp_path / "example", {"LD_LIBRARY_PATH": str(home / "lib")}
    source = ROOT / "ingestd/clients/c/example.c"
    subprocess.run(["cc", "-Wall", "-Werror", f"-I{home}/include", source, f"-L{home}/lib", "-lloom_client", "-o", example], check=True)
    directory = tmp_path / "app.loom"
    with subprocess.Popen([home / "bin/ingestd", "run", directory], env={}) as daemon:
        until(lambda: daemon.poll() is None and (directory / "ingest.sock").exists())
        pushed = subprocess.run([example, directory, "1000"], check=True, capture_output=True, text=True, env=libraries)
        assert pushed.stdout == "received=1000 stored=1000 refused=0 dropped=0\n"
        environment = libraries | {"PYTHONPATH": str(home / "share/loom")}
        python = subprocess.run([sys.executable, "-c", PUSH, directory], env=environment, capture_output=True, text=True)
        assert python.stdout.startswith("{'received': 1, 'stored': 1,"), python.stderr
        daemon.terminate()
        assert daemon.wait() == 0


def test_the_wheel_works_in_an_environment_of_its_own(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pinned = ["--constraint", ROOT / "tests/clients-requirements.txt"]
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pinned, the_only(WHEEL)]
    subprocess.run(install, check=True)
    write_rows(tmp_path / "rows.csv")
    directory = tmp_path / "shop.loom"
    fields = ["--fields", tmp_path / "rows.toml"]
    subprocess.run([os.environ["INGESTD"], "load", directory, tmp_path / "rows.csv", *fields, *LOAD], check=True)
    query = f"import loom_duckdb; print(*loom_duckdb.connect().execute({SLOWEST.format(directory)!r}).fetchone())"
    asked = subprocess.run([python, "-c", query], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert asked.stdout.split() == [str(value) for value in ANSWER]


def test_every_package_has_its_sum() -> None:
    packages = {the_only(DEB), the_only(TARBALL), the_only(WHEEL)}
    packages |= {path for folder in versions.FILES for path in (DIST / folder).iterdir()}
    packages |= {path for path in (DIST / "repository").rglob("*") if path.is_file()}
    sums = dict(reversed(line.split()) for line in (DIST / "SHA256SUMS").read_text().splitlines())
    assert sums == {str(path.relative_to(DIST)): hashlib.sha256(path.read_bytes()).hexdigest() for path in packages}


# Packs with little compression, which takes a tenth of the time.
PACK = "import sys, package; package.LEVEL = 0; package.main()"


def contents(path: Path) -> list[bytes]:
    """Return a package without its compression."""
    if path.suffix == ".deb":
        parts = ("--ctrl-tarfile", "--fsys-tarfile")
        return [subprocess.run(["dpkg-deb", part, path], check=True, capture_output=True).stdout for part in parts]
    return [lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()]


def test_the_same_binaries_give_the_same_packages_whoever_packs_them(tmp_path: Path) -> None:
    """`make release-check` builds the binaries twice too."""
    environment = os.environ | {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONPATH": str(ROOT / "ingestd/packaging")}
    again = functools.partial(subprocess.run, check=True, capture_output=True, env=environment, umask=0o077)
    hatchling = [ROOT / ".clients-venv/bin/hatchling", "build", "--target", "wheel", "--directory", tmp_path]
    again(hatchling, cwd=ROOT / "duckdb-ext/python")
    again([sys.executable, "-c", PACK, os.environ["INGESTD"], tmp_path], cwd=tmp_path)
    made = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "SHA256SUMS"]
    packages = {the_only(pattern) for pattern in (DEB, TARBALL, WHEEL)}
    assert {path.name for path in packages} < {path.name for path in made}
    assert [path for path in made if contents(path) != contents(DIST / path.relative_to(tmp_path))] == []
