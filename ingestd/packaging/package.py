#!/usr/bin/env python3
"""Writes the Debian package and the tarball into dist, the SHA-256 sums of both and of the wheel, and a repository of the extension.

Both have the same files: the daemon, the extension files, man pages, completions, the clients, the units, the configuration and the pages.
The same inputs give the same bytes: every file gets the time SOURCE_DATE_EPOCH, or else that of the last commit. If LOOM_SIGNING_KEY names
an RSA key of 2048 bits, the files for DuckDB 2 are signed, and DuckDB installs them from the repository; see repository.py.

    package.py target/release/ingestd dist
"""

import gzip
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = ["strip", "dpkg-deb", "dpkg-shlibdeps"]

sys.path[:0] = [str(ROOT / "duckdb-ext"), str(HERE)]
import versions  # noqa: E402

import pages  # noqa: E402
import repository  # noqa: E402

# The copied files, and their places below the root of a machine. All pages that the first one leads to are copied, so that no link is dead.
FILES = [
    *((ROOT / f"dist/{folder}/loom.duckdb_extension", f"usr/lib/loom/{folder}/loom.duckdb_extension") for folder in versions.FILES),
    (ROOT / "sql/macros.sql", "usr/share/loom/macros.sql"),
    (ROOT / "sql/fleet.sql", "usr/share/loom/fleet.sql"),
    (ROOT / "ingestd/clients/python/loom_client.py", "usr/share/loom/loom_client.py"),
    (ROOT / "ingestd/clients/python/loom_ring.py", "usr/share/loom/loom_ring.py"),
    (ROOT / "ingestd/clients/c/loom_client.h", "usr/include/loom_client.h"),
    *((file, f"usr/share/doc/loom/{file.relative_to(ROOT)}") for file in sorted(pages.reachable(ROOT / "README.md"))),
    (ROOT / "dist/html", "usr/share/doc/loom/html"),
    (ROOT / "LICENSE", "usr/share/doc/loom/copyright"),
    (HERE / "loom.service", "usr/lib/systemd/system/loom.service"),
    (HERE / "loom-serve@.service", "usr/lib/systemd/system/loom-serve@.service"),
    (HERE / "network.conf", "usr/share/loom/network.conf"),
    (HERE / "loom.toml", "etc/loom/loom.toml"),
]

CONTROL = """\
Package: loom
Version: {version}
Architecture: {architecture}
Maintainer: The Loom authors <loom@localhost>
Section: database
Priority: optional
Installed-Size: {kib}
Depends: {depends}
Recommends: tcpdump
Description: recorder of high-frequency telemetry, with SQL
 Loom records every event that a host emits, millions of small records a
 second, on one core. This package holds the daemon ingestd, the DuckDB
 extension that answers SQL queries while the daemon records, and the
 libraries for programs that record.
"""


def main() -> None:
    """Stage the tree once, and pack it twice."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: package.py INGESTD DIST")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"package.py: {', '.join(missing)} missing; install binutils and dpkg-dev (Debian, Ubuntu)")
    ingestd, dist = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    os.environ.setdefault("SOURCE_DATE_EPOCH", said("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place, "root")
        stage(ingestd, tree, dist / "repository")
        made = [tarball(tree, dist, version), debian(tree, dist, version)]
    made += dist.glob(f"loom_duckdb-{version}-*.whl")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made)]
    (dist / "SHA256SUMS").write_text("".join(sums))
    print(*sorted(made), dist / "SHA256SUMS", sep="\n")


def stage(ingestd: Path, tree: Path, published: Path) -> None:
    """Put every file into its place with its mode and time, and publish the signed ones."""
    for source, target in FILES:
        if not source.exists():
            raise SystemExit(f"package.py: {source} is missing; run 'make package'")
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, place(tree / target))
    (tree / "usr/lib/loom" / versions.LINK).symlink_to(versions.folder(versions.NEWEST))
    program = place(tree / "usr/bin/ingestd")
    run("strip", "--strip-debug", "-o", program, ingestd)
    run("strip", "--strip-debug", "-o", place(tree / "usr/lib/libloom_client.so"), ingestd.with_name("libloom_client.so"))
    run(ingestd, "generate", tree / "usr/share")
    for page in (tree / "usr/share/man").rglob("*.[15]"):
        page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
    sign(tree / "usr/lib/loom", published)
    settle(tree)
    program.chmod(0o755)


def sign(extensions: Path, published: Path) -> None:
    """Sign the staged extension files, and write the repository for a web server, if the builder has a key."""
    # One of another key would be a trap.
    shutil.rmtree(published, ignore_errors=True)
    key = os.environ.get("LOOM_SIGNING_KEY")
    if not key:
        print("package.py: without LOOM_SIGNING_KEY the packages hold no extension repository, and DuckDB loads Loom only with -unsigned")
        return
    public = repository.create(extensions, Path(key))
    repository.publish(extensions / "repository", published)
    print(f"{published}: signed by the key {repository.fingerprint(public)}")


def tarball(tree: Path, dist: Path, version: str) -> Path:
    """Pack `usr` and the configuration into one folder that may be anywhere."""
    name = f"loom-{version}-linux-{platform.machine()}"
    path = dist / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz", preset=9) as tar:
        for top, prefix in [(tree / "usr", name), (tree / "etc", f"{name}/etc")]:
            for file in sorted(top.rglob("*")):
                tar.add(file, f"{prefix}/{file.relative_to(top)}", recursive=False, filter=of_nobody)
    return path


def of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the user who built it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def debian(tree: Path, dist: Path, version: str) -> Path:
    """Add the control files, and pack the tree with them."""
    architecture = said("dpkg", "--print-architecture")
    kib = sum(file.lstat().st_size for file in tree.rglob("*") if not file.is_dir()) // 1024
    depends = f"{libraries(tree)}, passwd"
    control = place(tree / "DEBIAN/control")
    control.write_text(CONTROL.format(version=version, architecture=architecture, kib=kib, depends=depends))
    (tree / "DEBIAN/conffiles").write_text("/etc/loom/loom.toml\n")
    scripts = [shutil.copyfile(HERE / script, tree / "DEBIAN" / script) for script in ("postinst", "prerm")]
    settle(tree / "DEBIAN")
    for script in scripts:
        script.chmod(0o755)
    path = dist / f"loom_{version}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", "-z9", "--build", tree, path, stdout=subprocess.DEVNULL)
    return path


def libraries(tree: Path) -> str:
    """Return the packages, with versions, that have the symbols of the binaries."""
    with tempfile.TemporaryDirectory() as place:
        # The tool only reads the name of a source package from here.
        Path(place, "debian").mkdir()
        Path(place, "debian/control").write_text("Source: loom\n\nPackage: loom\nArchitecture: any\n")
        extensions = (tree / "usr/lib/loom" / folder / "loom.duckdb_extension" for folder in versions.FILES)
        binaries = [tree / "usr/bin/ingestd", tree / "usr/lib/libloom_client.so", *extensions]
        depends = said("dpkg-shlibdeps", "-O", *(f"-e{binary}" for binary in binaries), cwd=place)
    return depends.removeprefix("shlibs:Depends=")


def place(path: Path) -> Path:
    """Create the folder of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def settle(tree: Path) -> None:
    """Set the mode and time of everything, whatever the umask and the time of the build."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess:
    """Run a program that must succeed."""
    return subprocess.run(command, check=True, **options)


def said(*command: str | Path, **options: object) -> str:
    """Return what a program prints."""
    return run(*command, stdout=subprocess.PIPE, text=True, **options).stdout.strip()


if __name__ == "__main__":
    main()
