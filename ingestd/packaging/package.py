#!/usr/bin/env python3
"""Writes the Debian package and the tarball into dist, a repository of the extension, and the SHA-256 sums of what people download.

Both have the same files: the daemon, the extension files, man pages, completions, the clients, the units, the configuration and the pages.
The same inputs give the same bytes: every file gets the time SOURCE_DATE_EPOCH, or else that of the last commit. If LOOM_SIGNING_KEY names
an RSA key of 2048 bits, the files for DuckDB 2 are signed, and DuckDB installs them from the repository; see repository.py.

The packages are for the processor of the daemon. With ARCH, as `make package ARCH=aarch64` sets it, all files must be for this processor
and an old glibc. The daemon writes its man pages itself; one for another processor than this machine's runs under QEMU.

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
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROGRAMS = ["strip", "readelf", "dpkg-deb"]
# The level of xz. Its window holds all extension files, which have most of their bytes in common.
LEVEL = 9
CLIENT = "libloom_client.so"

sys.path[:0] = [str(ROOT / "duckdb-ext"), str(HERE)]
import versions  # noqa: E402

import elf  # noqa: E402
import pages  # noqa: E402
import repository  # noqa: E402

# Where `make build` puts the extension files.
BUILT = ROOT / "dist" / os.environ.get("ARCH", "")

# The copied files, and their places below the root of a machine. All pages that the first one leads to are copied, so that no link is dead.
FILES = [
    *((BUILT / folder / repository.NAME, f"usr/lib/loom/{folder}/{repository.NAME}") for folder in versions.FILES),
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
        raise SystemExit(f"package.py: {', '.join(missing)} missing; install binutils and dpkg (Debian, Ubuntu)")
    ingestd, dist = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    os.environ.setdefault("SOURCE_DATE_EPOCH", said("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place, "root")
        stage(ingestd, tree, dist / "repository")
        made = [tarball(tree, dist), debian(tree, dist)]
    made += dist.glob(f"loom_duckdb-{versions.LOOM}-*.whl")
    print(*sorted(made), dist / "SHA256SUMS", sep="\n")
    made += [dist / folder / repository.NAME for folder in versions.FILES if (dist / folder).exists()]
    made += (path for path in (dist / "repository").rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(dist)}\n" for path in sorted(made)]
    (dist / "SHA256SUMS").write_text("".join(sums))


def stage(ingestd: Path, tree: Path, published: Path) -> None:
    """Put every file into its place with its mode and time, and publish the signed ones."""
    for source, target in FILES:
        if not source.exists():
            raise SystemExit(f"package.py: {source} is missing; run 'make package'")
        copy = shutil.copytree if source.is_dir() else shutil.copyfile
        copy(source, place(tree / target))
    if arch := os.environ.get("ARCH"):
        elf.require(arch, ingestd, ingestd.with_name(CLIENT), *(source for source, _ in FILES if source.name == repository.NAME))
    (tree / "usr/lib/loom" / versions.LINK).symlink_to(versions.folder(versions.NEWEST))
    program = place(tree / "usr/bin/ingestd")
    strip, *emulator = tools(elf.machine(ingestd)[0])
    run(strip, "--strip-debug", "-o", program, ingestd)
    run(strip, "--strip-debug", "-o", place(tree / "usr/lib" / CLIENT), ingestd.with_name(CLIENT))
    run(*emulator, ingestd, "generate", tree / "usr/share")
    for page in (tree / "usr/share/man").rglob("*.[15]"):
        page.with_name(page.name + ".gz").write_bytes(gzip.compress(page.read_bytes(), mtime=0))
        page.unlink()
    sign(tree / "usr/lib/loom", published)
    settle(tree)
    program.chmod(0o755)


def tools(machine: str) -> list[str]:
    """Return the program that strips files of a processor, and what its programs run under."""
    if machine == platform.machine():
        return ["strip"]
    found = [f"{machine}-linux-gnu-strip", f"qemu-{machine}", "-L", f"/usr/{machine}-linux-gnu"]
    if not all(map(shutil.which, found[:2])):
        packages = f"g++-{machine.replace('_', '-')}-linux-gnu and qemu-user"
        raise SystemExit(f"package.py: {found[0]} or {found[1]} missing; install {packages} (Debian, Ubuntu)")
    return found


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


def tarball(tree: Path, dist: Path) -> Path:
    """Pack `usr` and the configuration into one folder that may be anywhere."""
    machine, _ = elf.machine(tree / "usr/bin/ingestd")
    name = f"loom-{versions.LOOM}-linux-{machine}"
    path = dist / f"{name}.tar.xz"
    with tarfile.open(path, "w:xz", preset=LEVEL) as tar:
        for top, prefix in [(tree / "usr", name), (tree / "etc", f"{name}/etc")]:
            for file in sorted(top.rglob("*")):
                tar.add(file, f"{prefix}/{file.relative_to(top)}", recursive=False, filter=of_nobody)
    return path


def of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the user who built it."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def debian(tree: Path, dist: Path) -> Path:
    """Add the control files, and pack the tree with them."""
    ingestd = tree / "usr/bin/ingestd"
    _, architecture = elf.machine(ingestd)
    extensions = (tree / "usr/lib/loom" / folder / repository.NAME for folder in versions.FILES)
    depends = f"{elf.packages(ingestd, tree / 'usr/lib' / CLIENT, *extensions)}, passwd"
    kib = sum(file.lstat().st_size for file in tree.rglob("*") if not file.is_dir()) // 1024
    control = place(tree / "DEBIAN/control")
    control.write_text(CONTROL.format(version=versions.LOOM, architecture=architecture, kib=kib, depends=depends))
    (tree / "DEBIAN/conffiles").write_text("/etc/loom/loom.toml\n")
    scripts = [shutil.copyfile(HERE / script, tree / "DEBIAN" / script) for script in ("postinst", "prerm")]
    settle(tree / "DEBIAN")
    for script in scripts:
        script.chmod(0o755)
    path = dist / f"loom_{versions.LOOM}_{architecture}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", f"-z{LEVEL}", "--build", tree, path, stdout=subprocess.DEVNULL)
    return path


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
