"""`python -m loom_duckdb.mcp DIR`: checks the arguments, and serves until standard input ends."""

import argparse
import sys

import duckdb

from loom_duckdb.given import existing, path, seconds


def main() -> int:
    """Serve, and return the exit status."""
    arguments = _parser().parse_args()
    try:
        directories = existing(arguments.dir)
        try:
            from loom_duckdb.explore.workers import Workers
            from loom_duckdb.mcp.asking import Asker
            from loom_duckdb.mcp.tools import server
        except ModuleNotFoundError as error:
            raise RuntimeError(f"the package {error.name} is missing; run 'pip install loom_duckdb[mcp]'") from error
        server(Asker(Workers(directories), arguments.timeout), allow_pins=arguments.allow_pins).run("stdio")
        return 0
    except (RuntimeError, OSError, duckdb.Error) as error:
        print(f"mcp: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loom_duckdb.mcp",
        description="Serve Loom directories to an agent by the Model Context Protocol, over standard input and output",
        epilog="Example: claude mcp add loom -- python -m loom_duckdb.mcp /var/lib/loom",
    )
    parser.add_argument("dir", nargs="+", type=path, help="Loom directory; the server reads no other")
    parser.add_argument("--timeout", type=seconds, default=30, metavar="SECONDS", help="longest time of a query, 30 by default")
    parser.add_argument(
        "--allow-pins",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the agent may pin records, which can make older pins go; it may by default",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
