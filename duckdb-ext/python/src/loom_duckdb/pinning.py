"""Keeps records as a pin, by the daemon that runs on their directory. The daemon takes this from its own user and from root."""

import os
from pathlib import Path
from typing import Any

from loom_duckdb import client

LARGEST_NS = 2**63 - 1


class PinError(Exception):
    """The records are not kept; the text says why."""


def may_pin(directory: Path) -> bool:
    """Whether this process has the user to whom the directory belongs, or root."""
    return os.geteuid() in (0, directory.stat().st_uid)


def pin(directory: Path, from_us: int, to_us: int, name: str, sources: list[str]) -> dict[str, Any]:
    """Keep the records that arrived in a half-open span, of some sources or of all, and return the daemon's answer. Raises PinError."""
    first, end = from_us * 1000, to_us * 1000
    if not -LARGEST_NS < first < end <= LARGEST_NS:
        raise PinError("the span is empty or not a time; choose an end after the begin")
    try:
        daemon = client.connect(str(directory), "loom_duckdb", patience=0)
        try:
            return daemon.pin(first, end, name, sources)
        finally:
            daemon.socket.close()
    except (client.LoomError, OSError) as error:
        raise PinError(str(error)) from error
