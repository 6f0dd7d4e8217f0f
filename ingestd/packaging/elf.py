"""What a built file is for: its processor, its libraries, and the oldest glibc that has all its symbols."""

import re
import subprocess
from pathlib import Path

# `make build ARCH=…` links for this version.
GLIBC = (2, 28)
# The machine's number in the head of a file, and the names that the kernel and Debian have for it.
MACHINES = {62: ("x86_64", "amd64"), 183: ("aarch64", "arm64")}


def machine(file: Path) -> tuple[str, str]:
    """Return the kernel's and Debian's name of the processor."""
    with file.open("rb") as opened:
        head = opened.read(20)
    number = int.from_bytes(head[18:], "little")
    if head[:4] != b"\x7fELF" or number not in MACHINES:
        raise SystemExit(f"{file} is not a program or library for Linux on x86-64 or AArch64")
    return MACHINES[number]


def require(arch: str, *files: Path) -> None:
    """Refuse files that are for another processor than this one, or need a later glibc than `GLIBC`."""
    remedy = f"run 'make build ARCH={arch}'"
    for file in files:
        found, _ = machine(file)
        if found != arch:
            raise SystemExit(f"{file} is for {found}, and not for {arch}; {remedy}")
        needed = glibc(file)
        if needed > GLIBC:
            raise SystemExit("{} needs glibc {}.{}, and the packages promise {}.{}; {}".format(file, *needed, *GLIBC, remedy))


def glibc(*files: Path) -> tuple[int, int]:
    """Return the oldest glibc that has all symbols of these files."""
    found = re.findall(r"Name: GLIBC_(\d+)\.(\d+)", readelf("--version-info", *files))
    return max((int(major), int(minor)) for major, minor in found)


def packages(*files: Path) -> str:
    """Return what Debian's control file says about the libraries of these files."""
    named = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", *files)))
    others = {name for name in named if not re.fullmatch(r"lib(c|m|dl|pthread|rt)\.so\.\d|ld-linux-.*", name)}
    if unknown := others - {"libgcc_s.so.1"}:
        raise SystemExit(f"a binary needs {', '.join(sorted(unknown))}; link it statically, or add Debian's package of it to elf.py")
    return "libc6 (>= {}.{})".format(*glibc(*files)) + (", libgcc-s1" if others else "")


def readelf(*arguments: str | Path) -> str:
    """Return what readelf prints about files for any processor."""
    return subprocess.run(["readelf", "--wide", *arguments], check=True, capture_output=True, text=True).stdout
