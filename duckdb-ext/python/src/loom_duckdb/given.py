"""The arguments that the programs of this package share: Loom directories, and a time."""

import argparse
import math
from pathlib import Path

import duckdb

from loom_duckdb.files import NATIVE, is_native


def path(text: str) -> Path:
    """Read the path of a directory."""
    if not text:
        raise argparse.ArgumentTypeError("the directory is empty text; name a Loom directory")
    return Path(text)


def seconds(text: str) -> float:
    """Read a length of time."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a time; give seconds, more than 0")
    return number


def existing(paths: list[Path]) -> list[Path]:
    """Return the directories without links. Raises RuntimeError if one is missing, or if this DuckDB cannot confine Loom to them."""
    if not is_native(duckdb.__version__):
        raise RuntimeError(
            f"cannot start with duckdb {duckdb.__version__}: only with {', '.join(NATIVE)} does Loom stay in the directories "
            f"that it was given; run 'pip install duckdb=={NATIVE[-1]}'"
        )
    for given in paths:
        if not given.is_dir():
            remedy = "quote no glob: the shell expands it" if "*" in str(given) else f"create it with 'ingestd run {given}'"
            raise RuntimeError(f"cannot open Loom directory '{given}': no such directory; {remedy}")
    return [given.resolve() for given in paths]
