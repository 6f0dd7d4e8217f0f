"""Pushes records to a running ingestd: one file, standard library only. PROTOCOL.md specifies the bytes.

    loom = loom_client.connect("/var/lib/loom")         # or: with loom_client.connect(…) as loom: it syncs at its end
    loom.define('[[source]]\\nname = "ticks"\\n[[source.field]]\\nname = "n"\\ntype = "u64"')
    loom.push("ticks", [(1,), {"n": 2}])                # rows: values in the fields' order, or by name; None is NULL
    loom.push("ticks", struct.pack("<3Q", 3, 4, 5))     # or packed little-endian payloads, all of one size
    print(loom.sync())                                  # visible now: {'position': …, 'stored': 5, …}

A client outlives its daemon: a call that finds it gone connects to the next one within `patience`. If records were pushed since the last
sync, it then raises `Disconnected`, whose `unsure` counts them: the log has some, all or none of them. The client can go on.

With time = "own", a row's first value, called "ts" by name, is its time in ns since the epoch.
"""

import json
import os
import socket
import struct
import time

FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
           "f32": "f", "f64": "d", "bool": "?", "timestamp_ns": "q", "utf8": "", "bytes": "", "json": ""}
BATCH = 64 * 1024


class LoomError(Exception):
    """The daemon refused a request, or is gone. `code` is a number of PROTOCOL.md; `counts` comes from a goodbye."""

    def __init__(self, message, code=None, counts=None):
        super().__init__(message)
        self.code, self.counts = code, counts


class Disconnected(LoomError):
    """The daemon has ended. It may have stored `unsure` records that were pushed since the last sync; synced records are stored."""

    unsure = 0


class RowError(LoomError, ValueError):
    """A row does not fit its source. The `pushed` rows before it are on their way; this row and the rows after it are not."""

    def __init__(self, message, pushed):
        super().__init__(message)
        self.pushed = pushed


class Source:
    """Turns rows of a source into payloads."""

    def __init__(self, described):
        self.id, self.fields = described["id"], described["fields"]
        self.own = described["time"] == "own"
        self.columns = ["ts"] * self.own + [field["name"] for field in self.fields]
        # bytes[6] and char[6] are 6s; fields of varying length are not among the fixed ones.
        self.formats = [FORMATS.get(f["type"]) if "[" not in f["type"] else f["type"].split("[")[1][:-1] + "s"
                        for f in self.fields]
        self.labels = [{text: int(n) for n, text in (f.get("labels") or {}).items()} for f in self.fields]
        nulls = (sum(f["nullable"] for f in self.fields) + 7) // 8
        self.size = 8 * self.own + nulls + struct.calcsize("<" + "".join(self.formats))
        self.varies = not self.fields or "" in self.formats

    def pack(self, row):
        if isinstance(row, dict):
            if unknown := row.keys() - set(self.columns):
                raise ValueError(f"unknown fields {sorted(unknown)}; the columns are {self.columns}")
            row = [row.get(column) for column in self.columns]
        if self.own and not isinstance(row[0], int):
            raise ValueError(f"ts is nanoseconds since the epoch, not {row[0]!r:.60}")
        head = struct.pack("<q", row[0]) if self.own else b""
        values = row[self.own:]
        if not self.fields and len(values) == 1:  # raw
            return head + values[0]
        if len(values) != len(self.fields):
            raise ValueError(f"{len(row)} values for the columns {self.columns}")
        nulls, nullable, fixed, varying, lengths = 0, 0, b"", b"", b""
        for field, form, labels, value in zip(self.fields, self.formats, self.labels, values):
            nulls |= (value is None) << nullable
            nullable += field["nullable"]
            if value is None and not field["nullable"]:
                raise ValueError(f"{field['name']} cannot be NULL")
            try:
                raw = value
                if isinstance(raw, str):
                    raw = labels[raw] if labels else raw.encode()
                if form == "?" and raw not in (None, False, True):
                    raise TypeError
                if raw is None:
                    raw = b"" if form == "" or form.endswith("s") else 0
                if form == "":
                    lengths += struct.pack("<H", len(raw))
                    varying += raw
                elif form.endswith("s") and len(raw) > struct.calcsize(form):
                    raise ValueError(f"{field['name']} is {field['type']}, not {len(raw)} bytes")
                else:
                    fixed += struct.pack("<" + form, raw)
            except (struct.error, KeyError, TypeError) as error:
                known = f" or one of {list(labels)}" if labels else ""
                raise ValueError(f"{field['name']} is {field['type']}{known}, not {value!r:.60}") from error
        return b"".join([head, nulls.to_bytes((nullable + 7) // 8, "little"), fixed, lengths, varying])


class Client:
    def __init__(self, directory, name, patience):
        self.directory, self.name, self.patience = directory, name.encode(), patience
        self.unsynced = 0
        self._connect()

    def _connect(self):
        directory = self.directory
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        opened = None
        try:  # through a descriptor, because a socket's path is at most 107 bytes long
            opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
            self.socket.connect(f"/proc/self/fd/{opened}/ingest.sock")
        except PermissionError as error:
            raise LoomError(f"this user may not push to {directory}: {error}; "
                            "join the daemon's [access] group, which also needs socket = \"group\"") from error
        except OSError as error:
            raise Disconnected(f"no daemon runs on {directory}: {error}; start one with 'ingestd run {directory}'") from error
        finally:
            if opened is not None:
                os.close(opened)
        self.request, self.sources, self.pending = 0, {}, bytearray()
        self._frame(0x01, 0, b"LOOMSOCK" + struct.pack("<HH", 1, len(self.name)) + self.name)
        self._send()
        self._receive(0x81)

    def _connect_again(self, error):
        """Connects to the next daemon, and reports unsure records."""
        deadline, pause = time.monotonic() + self.patience, 0.01
        error.unsure, self.unsynced = self.unsynced, 0
        while True:
            try:
                self.socket.close()
                self._connect()
                break
            except Disconnected:
                if time.monotonic() > deadline:
                    raise error from None
                time.sleep(pause)
                pause = min(2 * pause, 1)
        if error.unsure:
            error.args = (f"{error}; {error.unsure} records pushed since the last sync may be stored or not; the next daemon is connected",)
            raise error

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.sync()
        finally:
            self.socket.close()

    def define(self, toml):
        """Defines the [[source]] tables of a TOML text, and returns {name: id}. A source that exists is not an error."""
        body, ids, at = self._ask(0x05, toml.encode(), 0x85), {}, 6
        while at < len(body):
            number, length = struct.unpack_from("<HH", body, at)
            ids[body[at + 4:at + 4 + length].decode()] = number
            at += 4 + length
        self.sources = {}
        return ids

    def push(self, source, records):
        """Adds rows, or packed payloads of one size, to the batch. A full batch is sent."""
        if source not in self.sources:
            self.sources = {described["name"]: Source(described) for described in self.catalog()}
        if source not in self.sources:
            raise LoomError(f"unknown source {source}; define it first", 5)
        layout = self.sources[source]
        if not isinstance(records, (bytes, bytearray, memoryview)):
            body, pushed = bytearray(), 0
            for row in records:
                try:
                    payload = layout.pack(row)
                    body += struct.pack("<H", len(payload)) + payload
                except (struct.error, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
                    self._push(0x03, layout.id, body, 0)
                    raise RowError(f"row {pushed} of {source}: {type(error).__name__}: {error}", pushed) from error
                pushed += 1
                self.unsynced += 1
                if len(body) >= BATCH:
                    self._push(0x03, layout.id, body, 0)
                    body = bytearray()
            return self._push(0x03, layout.id, body, 0)
        if layout.varies or len(records) % layout.size:
            raise ValueError(f"{len(records)} bytes are not a multiple of the payload size; push rows")
        step = max(1, BATCH // layout.size) * layout.size
        for at in range(0, len(records), step):
            part = records[at:at + step]
            self._push(0x02, layout.id, struct.pack("<HH", layout.size, 0) + part, len(part) // layout.size)

    def sync(self, durable=False):
        """Waits until all pushed records are visible, or durable, and returns the counts of this connection."""
        counts = self._counts(self._ask(0x04, bytes([durable, 0, 0, 0]), 0x84))
        self.unsynced = 0
        return counts

    def catalog(self):
        return json.loads(self._ask(0x09, b"", 0x89)[4:])

    def pin(self, first, end, name, sources=()):
        """Keeps the records that arrived from `first` until before `end`, in ns since the epoch, of some sources or of all."""
        text = name.encode()
        body = struct.pack("<qqH", first, end - 1, len(text)) + text + "\n".join(sources).encode()
        return json.loads(self._ask(0x14, body, 0x93)[4:])

    def status(self):
        return json.loads(self._ask(0x0A, b"", 0x8A)[4:])

    def flush(self):
        try:
            self._send()
        except Disconnected as error:
            self._connect_again(error)

    def _send(self):
        data, self.pending = self.pending, bytearray()
        try:
            self.socket.sendall(data)
        except OSError as error:
            self._receive(None)  # the daemon's last message explains more
            raise Disconnected(f"the connection failed: {error}") from error

    def close(self):
        self.flush()
        self.socket.close()

    def _frame(self, kind, source, body):
        self.pending += struct.pack("<IBBH", len(body), kind, 0, source) + body

    def _push(self, kind, source, body, records):
        self.unsynced += records
        self._frame(kind, source, body)
        if len(self.pending) >= BATCH:
            self.flush()

    def _ask(self, kind, body, answer):
        try:
            return self._ask_once(kind, body, answer)
        except Disconnected as error:
            self._connect_again(error)
            return self._ask_once(kind, body, answer)

    def _ask_once(self, kind, body, answer):
        self.request += 1
        self._frame(kind, 0, struct.pack("<I", self.request) + body)
        self._send()
        return self._receive(answer)

    def _receive(self, answer):
        length, kind = struct.unpack("<IB3x", self._read(8))
        body = self._read(length)
        try:
            return self._answered(kind, body, answer)
        except (struct.error, UnicodeDecodeError) as error:
            raise LoomError(f"cannot read the daemon's answer: {error}") from error

    def _answered(self, kind, body, answer):
        if kind == 0xFF:
            raise LoomError(body[8:].decode(), struct.unpack_from("<4xH", body)[0])
        if kind == 0xFE:
            counts = self._counts(body)
            raise Disconnected(f"the daemon stopped; it stored {counts['stored']} records", None, counts)
        if answer and kind != answer:
            raise LoomError(f"the daemon answered with kind {kind:#x} instead of {answer:#x}")
        return body

    def _read(self, length):
        data = bytearray()
        while len(data) < length:
            try:
                piece = self.socket.recv(length - len(data))
            except OSError as error:
                raise Disconnected(f"the connection failed: {error}") from error
            if not piece:
                raise Disconnected("the daemon closed the connection")
            data += piece
        return bytes(data)

    @staticmethod
    def _counts(body):
        keys = ("position", "received", "stored", "refused", "dropped")
        return dict(zip(keys, struct.unpack_from("<8x5Q", body)), reason=body[50:].decode())


def connect(directory, name="python", patience=60):
    """Connects to the daemon that runs on a Loom directory. A call waits up to `patience` seconds for the next daemon."""
    return Client(directory, name, patience)
