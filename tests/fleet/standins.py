"""Stand-ins for hosts, at the level of the wire: they replay a real host's answers, late if asked, or fail in a given way.

Quack is HTTP: each message is a POST, whose answer is the next message. `Recorder` passes messages on to a host and keeps the answers by
question; `StandIn` gives them to every client that asks the same, and `Crowd` is thousands of them. The token is not checked. The
scale's tests and `measure.py` use them.
"""

import asyncio
import contextlib
import functools
import http.client
import multiprocessing
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock, Thread
from typing import Any

# The kind of a message is its third byte, followed by the name of its session, except in the greeting, whose answer gives that name.
GREETING, QUESTION, FETCH, FAREWELL = 1, 3, 7, 11
NAME = slice(6, 38)
# This mark is followed by the length and the text of a question's SQL.
MARK = b"\xff\xff\x01\x00"


@dataclass
class Answers:
    """A host's answers: to a greeting, to a farewell, and to each question. All answers to a question except the first were fetched."""

    greeting: bytes = b""
    farewell: bytes = b""
    to: dict[bytes, list[bytes]] = field(default_factory=dict)


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
        """Return the answer to a message, or None to close the connection in its middle."""
        raise NotImplementedError

    def count(self, sent: int) -> None:
        """Add a message and its answer."""
        with self._lock:
            self.bytes += sent
            self.messages += 1


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer is one write, because a head that waits for the rest would wait for the client's acknowledgement.
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
        self._open: dict[bytes, list[bytes]] = {}
        super().__init__()

    def answer(self, message: bytes) -> bytes:
        """Ask the host."""
        connection = http.client.HTTPConnection("localhost", self.host_port)
        connection.request("POST", "/quack", message, {"Content-Type": "application/octet-stream"})
        answer = connection.getresponse().read()
        connection.close()
        kind, session = message[2], message[NAME]
        if kind == GREETING:
            self.answers.greeting = answer
        elif kind == FAREWELL:
            self.answers.farewell = answer
        elif kind == QUESTION:
            self._open[session] = self.answers.to[message.partition(MARK)[2]] = [answer]
        else:
            assert kind == FETCH, message
            self._open[session].append(answer)
        return answer


@dataclass
class Behaviour:
    """The behaviour of a stand-in: the delay of its answers, and its failure, if any, at the first question that has a given text."""

    delay_s: float = 0
    breaks_at: bytes | None = None
    silent_at: bytes | None = None


class Replay:
    """Recorded answers, to every session in turn."""

    def __init__(self, answers: Answers, behaviour: Behaviour | None = None) -> None:
        """Take the answers and the behaviour."""
        self.answers, self.behaviour = answers, behaviour or Behaviour()
        self._left: dict[bytes, list[bytes]] = {}

    def answer(self, message: bytes) -> bytes | None:
        """Answer as the host did."""
        kind, session = message[2], message[NAME]
        if kind == GREETING:
            return self.answers.greeting.replace(self.answers.greeting[NAME], uuid.uuid4().hex.upper().encode())
        if kind == FAREWELL:
            # A client leaves after a broken answer too.
            self._left.pop(session, None)
            return self.answers.farewell
        if kind == QUESTION:
            time.sleep(self.behaviour.delay_s)
            if self.behaviour.silent_at is not None and self.behaviour.silent_at in message:
                # No client waits as long.
                time.sleep(600)
            if self.behaviour.breaks_at is not None and self.behaviour.breaks_at in message:
                return None
            first, *fetched = self.answers.to[message.partition(MARK)[2]]
            # A client fetches in several threads, each until it gets the short answer that ends the rows.
            self._left[session] = sorted(fetched, key=len)
            return first
        left = self._left[session]
        return left.pop() if len(left) > 1 else left[0]


class StandIn(Server):
    """Replays recorded answers in threads of its own."""

    def __init__(self, answers: Answers, behaviour: Behaviour | None = None) -> None:
        """Take the answers and the behaviour."""
        self.answer = Replay(answers, behaviour).answer
        super().__init__()


class Crowd:
    """Thousands of stand-ins in a process, each on a port of its own, that answer at once. A behaviour may break, but not wait."""

    def __init__(self, answers: Answers, behaviours: Sequence[Behaviour]) -> None:
        """Start a process with one stand-in for each behaviour, which ends with this one."""
        context = multiprocessing.get_context("spawn")
        near, far = context.Pipe()
        self._bytes = context.Value("Q", lock=False)
        self._process = context.Process(target=_Listeners, args=(answers, behaviours, self._bytes, far), daemon=True)
        self._process.start()
        self.addresses: list[str] = near.recv()

    @property
    def bytes(self) -> int:
        """Return the bytes of all messages so far, without the heads of HTTP."""
        return self._bytes.value

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


class _Listeners:
    """The process of a crowd."""

    def __init__(self, answers: Answers, behaviours: Sequence[Behaviour], counted: Any, started: Connection) -> None:
        self._bytes = counted
        asyncio.run(self._listen(answers, behaviours, started))

    async def _listen(self, answers: Answers, behaviours: Sequence[Behaviour], started: Connection) -> None:
        addresses = []
        for behaviour in behaviours:
            serve = functools.partial(self._serve, Replay(answers, behaviour))
            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            addresses.append(f"quack:localhost:{server.sockets[0].getsockname()[1]}")
        started.send(addresses)
        await asyncio.Event().wait()

    async def _serve(self, replay: Replay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                message = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                answer = replay.answer(message)
                if answer is None:
                    break
                self._bytes.value += len(message) + len(answer)
                kind = "Content-Type: application/vnd.duckdb"
                writer.write(f"HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
        writer.close()
