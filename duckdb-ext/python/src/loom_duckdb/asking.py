"""The process from which a fleet queries its hosts: each query in a thread of its own, to many hosts at the same time.

Quack has no timeout, so the thread of a silent host may wait for ever, and Python aborts if such a thread wakes up during exit. So these
threads live in a process that `Asker` can kill: as soon as no caller waits for another answer, and at exit.
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import duckdb
import pyarrow

from loom_duckdb.connection import quoted
from loom_duckdb.files import load_statement

_MAIN = "import sys; from loom_duckdb.asking import serve; serve(int(sys.argv[1]))"


class Question(NamedTuple):
    """A question to one host."""

    address: str
    text: str
    token: str
    tls: bool

    def send(self, cursor: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
        """Ask it; the answer is the cursor's. Raises `duckdb.Error`."""
        options = ", disable_ssl := false" if self.tls else ""
        return cursor.execute(f"FROM quack_query(?, ?, token := ?{options})", [self.address, self.text, self.token])


class Failure(NamedTuple):
    """The reason for a missing answer; `is_of_question` if the host reported that the question is wrong."""

    reason: str
    is_of_question: bool = False


class Asker:
    """Queries hosts from a process of its own, which the first question starts. Several threads may call it."""

    def __init__(self, ca_cert_file: str | None) -> None:
        """Take the certificates to trust; start nothing yet."""
        self._ca_cert_file = ca_cert_file
        self._lock = threading.Lock()
        self._process: _Process | None = None
        self._asking = 0
        self._is_any_silent = False

    def ask(self, questions: Mapping[str, Question], timeout_s: float) -> dict[str, pyarrow.Table | Failure]:
        """Ask all hosts at the same time, and return what each answered within the time."""
        with self._lock:
            if self._process is None or not self._process.is_alive():
                self._process = _Process(self._ca_cert_file)
            answers, asked = self._process.send(questions)
            self._asking += 1
        found: dict[str, pyarrow.Table | Failure] = {}
        deadline = time.monotonic() + timeout_s
        try:
            while asked:
                number, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
                found[asked.pop(number)] = pickle.loads(answer)  # noqa: S301
        except queue.Empty:
            found |= dict.fromkeys(asked.values(), Failure(f"no answer within {timeout_s} s (timeout_s)"))
        finally:
            with self._lock:
                self._asking -= 1
                self._is_any_silent |= bool(asked)
                if self._is_any_silent and self._asking == 0 and self._process is not None:
                    self._process.end()
                    self._process, self._is_any_silent = None, False
        return found


class _Process:
    def __init__(self, ca_cert_file: str | None) -> None:
        self._pipe, there = Pipe()
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        command = [sys.executable, "-c", _MAIN, str(there.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[there.fileno()])  # noqa: S603
        there.close()
        self._pipe.send(ca_cert_file)
        try:
            self._pipe.recv()
        except EOFError as error:
            raise RuntimeError(f"the process that asks hosts did not start: status {process.wait()}; its error is above") from error
        self._numbers = count()
        self._waiting: dict[int, queue.SimpleQueue[tuple[int, bytes]]] = {}
        self._reader = threading.Thread(target=_read, args=(self._pipe, self._waiting), daemon=True)
        self._reader.start()
        self.end = weakref.finalize(self, _end, process, self._reader)

    def is_alive(self) -> bool:
        """Whether it can be asked."""
        return self._reader.is_alive()

    def send(self, questions: Mapping[str, Question]) -> tuple[queue.SimpleQueue[tuple[int, bytes]], dict[int, str]]:
        """Send questions; return the queue of numbered answers, and the host of each number."""
        answers: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        asked = {}
        for name, question in questions.items():
            number = next(self._numbers)
            asked[number] = name
            self._waiting[number] = answers
            self._pipe.send((number, question))
        return answers, asked


def _read(pipe: Connection, waiting: dict[int, queue.SimpleQueue[tuple[int, bytes]]]) -> None:
    """Forward answers. The callers decode them, so this thread runs nothing that the exit of Python could break off."""
    try:
        while True:
            answer = pipe.recv_bytes()
            number = int.from_bytes(answer[:8], "little")
            waiting.pop(number).put((number, answer[8:]))
    except (EOFError, OSError):
        ended = pickle.dumps(Failure("the process that asks hosts ended; ask again"))
        for number, answers in list(waiting.items()):
            answers.put((number, ended))


def _end(process: subprocess.Popen, reader: threading.Thread) -> None:
    process.kill()
    process.wait()
    if reader is not threading.current_thread():
        reader.join()


def within(timeout_s: float, call: Callable[[], Any]) -> Any:
    """Return or raise the result of a call. Raises TimeoutError after `timeout_s`; the thread of the call then keeps waiting."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=answer, daemon=True).start()
    try:
        value, error = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError(f"no answer within {timeout_s} s (timeout_s)") from None
    if error is not None:
        raise error
    return value


def client(ca_cert_file: str | None) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB that can ask hosts; its cursors have the same settings."""
    connection = duckdb.connect()
    for name in ("httpfs", "quack"):
        connection.execute(load_statement(name))
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET GLOBAL http_retries = 0")
    if ca_cert_file is not None:
        connection.execute(f"SET GLOBAL ca_cert_file = {quoted(ca_cert_file)}; SET GLOBAL enable_server_cert_verification = true")
    return connection


def serve(descriptor: int) -> None:
    """Run the process that queries hosts, until the other end of the pipe is closed."""
    # Ctrl-C in the terminal is for the parent.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(descriptor)
    connection = client(pipe.recv())
    pipe.send(None)
    sending = threading.Lock()
    try:
        while True:
            number, question = pipe.recv()
            threading.Thread(target=_answer, args=(connection.cursor(), number, question, pipe, sending)).start()
    except (EOFError, OSError):
        # The usual exit of Python would wait for silent hosts.
        os._exit(0)


def _answer(cursor: duckdb.DuckDBPyConnection, number: int, question: Question, pipe: Connection, sending: threading.Lock) -> None:
    answer: pyarrow.Table | Failure
    try:
        answer = question.send(cursor).to_arrow_table()
    except duckdb.Error as error:
        answer = _failure(str(error))
    except MemoryError:
        answer = Failure("its answer does not fit this machine's memory; ask for less")
    message = number.to_bytes(8, "little") + pickle.dumps(answer, protocol=5)
    with sending:
        pipe.send_bytes(message)


def _failure(error: str) -> Failure:
    """Take the message of DuckDB without its pictures of statements. A picture from the host means that the question is wrong."""
    reason, *pictures = error.split("\n\nLINE ")
    is_of_question = len(pictures) > 1 or "cannot answer the question: " in reason
    return Failure(reason.strip(), is_of_question)
