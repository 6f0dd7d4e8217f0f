"""A program that pushes numbered records through rings: `rings.py` starts it. Arguments: the directory, the library, the rate.

A byte `g` on standard input begins, and `r` ends, which prints a line of JSON: records and bad ones pushed so far, and the counts of the sync.
"""

import json
import os
import select
import sys

from load import Pace
from rings import NAMES
from sockets import RECORD, SOURCE, pack

import loom_ring  # noqa: I001 - it is in a folder that `sockets` adds

BURST = 500
BAD_EVERY = 40


def main():
    directory, library, rate = sys.argv[1], sys.argv[2], float(sys.argv[3])
    loom = loom_ring.connect(directory, 1 << 20, library)
    sources = [loom.define(SOURCE.format(name=name, policy=policy)) for name, policy in NAMES.items()]
    seq = bursts = 0
    pace = Pace(rate)
    burst = pace.batch(BURST)
    while os.read(0, 1):
        while not select.select([0], [], [], 0)[0]:
            for source in sources:
                body = pack(source, range(seq, seq + burst))
                for at in range(0, len(body), RECORD.size):
                    loom.push(source, body[at:at + RECORD.size])
                if bursts % BAD_EVERY == 0:
                    loom.push(source, b"bad")
            seq += burst
            bursts += 1
            pace.passed(len(sources) * burst)
        os.read(0, 1)
        counts = loom.sync()
        print(json.dumps({"pushed": seq, "bad": (bursts + BAD_EVERY - 1) // BAD_EVERY, **counts}), flush=True)
    loom.close()


main()
