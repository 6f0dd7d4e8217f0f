"""A daemon under all loads at once, for a given time: full rate, restarts, kills, retention at its limit, readers of all kinds.

    .venv/bin/python tests/soak INGESTD [--seconds 600] [--extension dist/duckdb-v2/loom.duckdb_extension]
        [--extension-v1 dist/duckdb-v1/loom.duckdb_extension --python-v1 .clients-venv-v1/bin/python]

Loads are producers over the socket (`sockets.py`) and through rings (`rings.py`), a sender of OTLP (`otlp.py`), a target that is scraped
(`scrapes.py`), and records that break a rule, which pins (`alerts.py`). An archiver follows (`archive.py`). Readers (`readers.py`) are
commands of ingestd, queries of both DuckDBs in new processes, and queries in long-lived processes, which compare records with summaries and
are stopped and killed at random. Each round checks that the counts that producers got equal those of the log (received = stored + refused +
dropped, exact after a kill), that what was acknowledged is stored once, that the target was scraped, and that the rule fired, ended and
pinned. At the end it runs `ingestd check` and checks the most memory and disk that was used. Prints a line for each round and exits 0, or
prints the first failure and exits 1, and keeps the directory.

The accounts must add up: the daemon's shared memory is its staging and its rings, and the file system, which is the soak's own if root runs
it, has lost what the directory's files take. Idle readers keep evicted files open, at most HELD_MAX; without readers DISK_MARGIN is
allowed.
"""

import argparse
import random
import shutil
import sys
from pathlib import Path

from load import Failed
from soak import Soak


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ingestd", help="the daemon's program")
    parser.add_argument("--seconds", type=float, default=600, help="the duration; 600 by default")
    parser.add_argument("--extension", help="the extension file for this Python's DuckDB")
    parser.add_argument("--extension-v1", help="the extension file for DuckDB 1, with --python-v1")
    parser.add_argument("--python-v1", help="a Python that has DuckDB 1")
    parser.add_argument("--library", help="the client library for rings, by default libloom_client.so beside ingestd")
    parser.add_argument("--rate", type=float, default=0, help="records a second of each producer, instead of as many as it can push")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="repeats the actions of a run")
    given = parser.parse_args()
    if bool(given.extension_v1) != bool(given.python_v1):
        parser.error("--extension-v1 needs --python-v1, and the other way round")
    databases = [(python, file) for python, file in [(sys.executable, given.extension), (given.python_v1, given.extension_v1)] if file]
    library = given.library or Path(given.ingestd).resolve().with_name("libloom_client.so")
    soak = Soak(given.ingestd, library, databases, given.seconds, given.seed, given.rate)
    print(f"seed {given.seed}, in {soak.place}", flush=True)
    try:
        soak.run()
    except Failed as failed:
        print(f"FAILED: {failed}; the directory is {soak.place}", file=sys.stderr)
        return 1
    finally:
        soak.kill()
    soak.disk_of.unmount()
    shutil.rmtree(soak.place)
    shutil.rmtree(soak.staging)
    return 0


sys.exit(main())
