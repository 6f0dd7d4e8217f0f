"""`python -m loom_duckdb.explore DIR`: checks the arguments, starts the server and opens the browser."""

import argparse
import ipaddress
import secrets
import signal
import socket
import sys
import webbrowser

import duckdb

from loom_duckdb.given import existing, path, seconds

DEFAULT_PORT = 8686


def main() -> int:
    """Run until interrupted, and return the exit status."""
    arguments = _parser().parse_args()
    try:
        return _run(arguments)
    except (RuntimeError, OSError, duckdb.Error) as error:
        print(f"explore: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loom_duckdb.explore",
        description="Show Loom directories live in a browser",
        epilog="Example: python -m loom_duckdb.explore /var/lib/loom",
    )
    parser.add_argument("dir", nargs="+", type=path, help="Loom directory; the page reads no other")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help=f"port, {DEFAULT_PORT} by default; 0 takes a free one")
    parser.add_argument(
        "--address", default="127.0.0.1", help="address to listen on; others than loopback require a token, which is printed"
    )
    parser.add_argument("--timeout", type=seconds, default=10, metavar="SECONDS", help="longest time of a query, 10 by default")
    parser.add_argument(
        "--allow-pins",
        action=argparse.BooleanOptionalAction,
        help="whether who sees the page may pin records, which can make older pins go; by default only on loopback",
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    directories = existing(arguments.dir)
    try:
        import uvicorn

        from loom_duckdb.explore.server import application
        from loom_duckdb.explore.workers import Workers
    except ModuleNotFoundError as error:
        raise RuntimeError(f"the package {error.name} is missing; run 'pip install loom_duckdb[explore]'") from error

    listener, loopback = _listen(arguments.address, arguments.port)
    token = None if loopback else secrets.token_urlsafe(24)
    allow_pins = loopback if arguments.allow_pins is None else arguments.allow_pins
    app = application(Workers(directories), token, arguments.timeout, allow_pins=allow_pins)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    # From here on, a signal only asks the server to end, because an exception can be lost in a callback. uvicorn raises the signal again
    # when it ends, before the workers are cleared away.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)

    address, port = listener.getsockname()[:2]
    host = f"[{address}]" if ":" in address else address
    if ipaddress.ip_address(address).is_unspecified:
        host = socket.gethostname()
    url = f"http://{host}:{port}/" + (f"?token={token}" if token else "")
    print(f"explore: {url}", flush=True)
    if not arguments.no_browser:
        webbrowser.open(url)
    server.run(sockets=[listener])
    return 0


def _listen(address: str, port: int) -> tuple[socket.socket, bool]:
    """Open the listening socket, and say whether only this machine can reach it."""
    if not 0 <= port <= 65535:
        raise RuntimeError(f"cannot listen on port {port}: not a port; use a number up to 65535, or 0 for a free one")
    try:
        family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(place[:2], family=family)
    except OSError as error:
        raise RuntimeError(f"cannot listen on {address} port {port}: {error}; choose another with --address, --port") from error
    return listener, ipaddress.ip_address(place[0]).is_loopback


if __name__ == "__main__":
    sys.exit(main())
