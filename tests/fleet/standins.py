"""Stand-ins for hosts, at the level of the wire: they replay what a real host answered, late, or fail in a way that is asked for.

Quack is HTTP: each message is a POST, whose answer is the next message. `Recorder` passes messages on to a host and keeps the answers by
question; `StandIn` gives them to everybody who asks the same. A token is not checked. The scale's tests and `measure.py` use both.
"""

import http.client
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

# The kind of a message is its third byte. After this mark a question has the length and the text of its SQL.
QUESTION = 3
MARK = b"\xff\xff\x01\x00"

Answers = dict[bytes, bytes]


def key(message: bytes) -> bytes:
    """Return what makes a message the same for every session: its kind, and the SQL of a question."""
    kind = message[2:3]
    return kind + message.partition(MARK)[2] if kind[0] == QUESTION else kind


class Server:
    """An HTTP server on a port of its own that counts the bytes of all messages, without the heads of HTTP."""

    def __init__(self) -> None:
        """Listen."""
        self.bytes, self.messages, self._lock = 0, 0, Lock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.address = f"quack:localhost:{self.port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def answer(self, message: bytes) -> bytes | None:
        """Return the answer to a message; None closes the connection in its middle."""
        raise NotImplementedError

    def count(self, sent: int) -> None:
        """Add a message and its answer."""
        with self._lock:
            self.bytes += sent
            self.messages += 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is one write: a head that waits for the rest would wait for the client's acknowledgement.
    wbufsize = -1
    server_of: Server

    def do_POST(self) -> None:
        message = self.rfile.read(int(self.headers["Content-Length"]))
        answer = self.server_of.answer(message)
        if answer is None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf of an answer")
            self.close_connection = True
            return
        self.server_of.count(len(message) + len(answer))
        self.send_response(200)
        self.send_header("Content-Type", "application/vnd.duckdb")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Recorder(Server):
    """Passes messages on to a real host, and keeps its answers."""

    def __init__(self, host_port: int) -> None:
        """Take the host's port."""
        self.host_port, self.answers = host_port, Answers()
        super().__init__()

    def answer(self, message: bytes) -> bytes:
        """Ask the host."""
        connection = http.client.HTTPConnection("localhost", self.host_port)
        connection.request("POST", "/quack", message, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse().read()
        connection.close()
        self.answers[key(message)] = answer
        return answer


@dataclass
class Behaviour:
    """How a stand-in answers questions: so much later; and with what it fails, if it does, from the first question with this text on."""

    delay_s: float = 0
    breaks_at: bytes | None = None
    silent_at: bytes | None = None


@dataclass
class StandIn(Server):
    """Replays recorded answers."""

    answers: Answers
    behaviour: Behaviour = field(default_factory=Behaviour)

    def __post_init__(self) -> None:
        """Listen."""
        Server.__init__(self)

    def answer(self, message: bytes) -> bytes | None:
        """Answer as the host did."""
        if message[2] == QUESTION:
            time.sleep(self.behaviour.delay_s)
        if self.behaviour.silent_at is not None and self.behaviour.silent_at in message:
            # Longer than every client waits.
            time.sleep(600)
        if self.behaviour.breaks_at is not None and self.behaviour.breaks_at in message:
            return None
        return self.answers[key(message)]
