"""Tests what the packaging reads from a binary, on libraries of C for both processors: what it is for, and what it needs."""

import platform
import subprocess
from pathlib import Path

import pytest
from dist import missing

import elf

COMPILERS = {"x86_64": "x86_64-linux-gnu-gcc", "aarch64": "aarch64-linux-gnu-gcc"}
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
# OLD needs symbols of its processor's first glibc, LATER also one of a later glibc.
OLD = "#include <stdlib.h>\nvoid *f(void) { return malloc(1); }"
LATER = f"{OLD}\nunsigned arc4random(void); unsigned g(void) {{ return arc4random(); }}"


def library(folder: Path, arch: str, source: str, *options: str | Path) -> Path:
    """Compile a library, with this machine's compiler or that for the other processor."""
    compiler = "cc" if arch == platform.machine() else COMPILERS[arch]
    if absent := missing(compiler):
        pytest.skip(f"{absent} missing")
    path = folder / f"lib{len(list(folder.iterdir()))}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-xc", "-", "-xnone", "-o", path, *options], input=source, text=True, check=True)
    return path


@pytest.mark.parametrize("arch", list(COMPILERS))
def test_a_file_for_this_processor_and_an_old_glibc_is_packaged(arch: str, tmp_path: Path) -> None:
    old = library(tmp_path, arch, OLD)
    elf.require(arch, old)
    assert elf.machine(old) == (arch, DEBIAN[arch])
    major, minor = elf.glibc(old)
    assert (major, minor) < elf.GLIBC
    assert elf.packages(old) == f"libc6 (>= {major}.{minor})"
    both = elf.packages(old, library(tmp_path, arch, OLD, "-Wl,--no-as-needed", "-lgcc_s"))
    assert both.endswith(", libgcc-s1"), both


@pytest.mark.parametrize("arch", list(COMPILERS))
def test_a_file_that_needs_a_later_glibc_is_refused(arch: str, tmp_path: Path) -> None:
    later = library(tmp_path, arch, LATER)
    with pytest.raises(SystemExit, match=rf"{later} needs glibc 2\.36, .* promise 2\.28; run 'make build ARCH={arch}'"):
        elf.require(arch, library(tmp_path, arch, OLD), later)
    assert elf.packages(later) == "libc6 (>= 2.36)"


def test_a_file_for_another_processor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="is for x86_64, and not for aarch64; run 'make build ARCH=aarch64'"):
        elf.require("aarch64", library(tmp_path, "x86_64", OLD))


def test_a_file_that_needs_an_unknown_library_is_refused(tmp_path: Path) -> None:
    other = library(tmp_path, platform.machine(), OLD)
    with pytest.raises(SystemExit, match=f"needs .*{other.name}; .* add Debian's package"):
        elf.packages(library(tmp_path, platform.machine(), OLD, "-Wl,--no-as-needed", other))


def test_what_is_no_binary_for_linux_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("#!/bin/sh\n")
    with pytest.raises(SystemExit, match="is not a program or library for Linux"):
        elf.machine(text)
