#!/usr/bin/env python3
"""Prints the `description.yml` that DuckDB's repository of community extensions wants, for the commit that is checked out.

    description.py OWNER/REPOSITORY

OWNER/REPOSITORY is the place of this repository on GitHub, from which the community's CI fetches the commit.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

from versions import LOOM

ROOT = Path(__file__).resolve().parent.parent

# The platforms are those that Loom does not build for.
DESCRIPTION = """\
extension:
  name: loom
  description: Queries complete, live telemetry that the recorder Loom writes, with exact aggregates and quantiles
  version: {version}
  language: Rust
  build: cargo
  license: {license}
  excluded_platforms: "osx_amd64;osx_arm64;windows_amd64;windows_amd64_mingw;wasm_mvp;wasm_eh;wasm_threads"
  requires_toolchains: "rust;python3"
  maintainers:
    - name: The Loom authors

repo:
  github: {github}
  ref: {commit}

docs:
  hello_world: |
    -- 'ingestd demo demo.loom --seconds 60' records a million generated events a second.
    SELECT source, index, value, filter FROM loom_indexes('demo.loom');
    SELECT count, max, p99_99
    FROM loom_aggregate('demo.loom', 'redis_request', 'latency', last := INTERVAL 2 SECONDS, quantiles := [0.9999]);
    SELECT ts, op, latency_ns
    FROM loom_scan('demo.loom', 'redis_request', last := INTERVAL 1 SECOND, index := 'latency', v_min := 350_000);
  extended_description: |
    Loom records every event that a Linux host emits: millions of small records a second, on one core. Its daemon `ingestd` appends
    records from sockets, pipes, files and the kernel to a log on disk, and summarises each 64 KiB of it. This extension reads the log from
    another process while the daemon writes. It uses the summaries to skip what a query does not need: a time window, a range of values or
    an exact p99.99 over any length of time reads a few summaries and the chunks that matter. All aggregates and quantiles are exact.
"""


def main() -> None:
    """Fill in what the repository knows."""
    if len(sys.argv) != 2 or sys.argv[1].count("/") != 1:
        raise SystemExit("usage: description.py OWNER/REPOSITORY")
    package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    print(DESCRIPTION.format(version=LOOM, license=package["license"], github=sys.argv[1], commit=commit), end="")


if __name__ == "__main__":
    main()
