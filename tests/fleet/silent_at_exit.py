"""A program that asks a silent host, and ends just as the host closes its connections. `test_failing.py` runs it."""

import atexit
import socket
import threading

import loom_duckdb

HOSTS = 3
held: list[socket.socket] = []


def close_all() -> None:
    """Wake up threads that still wait for an answer."""
    for connection in held:
        connection.close()


listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(HOSTS)]
threading.Thread(target=lambda: held.extend(listener.accept()[0] for listener in listeners), daemon=True).start()
hosts = {str(number): f"quack:localhost:{listener.getsockname()[1]}" for number, listener in enumerate(listeners)}
fleet = loom_duckdb.Fleet(hosts, "a-token-for-tests-0123456789", timeout_s=1)
try:
    fleet.sql("SELECT 1")
except loom_duckdb.FleetError as error:
    print(error)
atexit.register(close_all)
