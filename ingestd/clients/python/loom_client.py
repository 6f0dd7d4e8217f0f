"""Pushes records to a running ingestd. One page, standard library only; PROTOCOL.md specifies the bytes.

    import loom_client
    with loom_client.connect("/var/lib/loom") as loom:
        loom.define('[[source]]\\nname = "ticks"\\n[[source.field]]\\nname = "n"\\ntype = "u64"')
        loom.push("ticks", [(1,), (2,), {"n": 3}])        # rows, in the order of the fields or by name
        loom.push("ticks", struct.pack("<3Q", 4, 5, 6))   # or packed little-endian payloads of one size
        print(loom.sync())                                # visible now: {'position': …, 'stored': 6, …}

A source with time = "own" takes the time (ns since the epoch) as the first value of a row, or under "ts". None is NULL.
"""

import json
import os
import socket
import struct

FORMATS = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i8": "b", "i16": "h", "i32": "i", "i64": "q",
           "f32": "f", "f64": "d", "bool": "?", "timestamp_ns": "q"}
BATCH = 64 * 1024


class LoomError(Exception):
    """The daemon refused something, or stopped; `code` is PROTOCOL.md's, None after a goodbye."""

    def __init__(self, code, message, counts=None):
        super().__init__(message)
        self.code, self.counts = code, counts


def connect(directory, name="python"):
    """Connects to the daemon that runs on a Loom directory."""
    return Client(directory, name)


class Source:
    """How a source's rows become payloads."""

    def __init__(self, described):
        self.id, self.own_time = described["id"], described["time"] == "own"
        self.fields = described["fields"]
        self.columns = (["ts"] if self.own_time else []) + [field["name"] for field in self.fields]
        self.labels = [{label: int(number) for number, label in (field.get("labels") or {}).items()}
                       for field in self.fields]
        self.fixed = struct.Struct("<" + "".join(self._format(field["type"]) for field in self.fields))
        # None for a length that varies; else the size of every payload.
        nulls = (sum(bool(field.get("nullable")) for field in self.fields) + 7) // 8
        varies = not self.fields or any(self._format(field["type"]) == "" for field in self.fields)
        self.size = None if varies else 8 * self.own_time + nulls + self.fixed.size

    @staticmethod
    def _format(kind):
        if kind.startswith(("char[", "bytes[")):
            return kind[kind.index("[") + 1:-1] + "s"
        return FORMATS.get(kind, "")  # utf8, bytes and json have no place among the fixed ones

    def pack(self, row):
        """The payload of one row: a sequence, or a dict by name."""
        if isinstance(row, dict):
            if unknown := row.keys() - set(self.columns):
                raise ValueError(f"no field {', '.join(sorted(unknown))}; there are {', '.join(self.columns)}")
            row = [row.get(column) for column in self.columns]
        if not self.fields and len(row) == 1 + self.own_time:
            head = struct.pack("<q", row[0]) if self.own_time else b""
            return head + bytes(row[-1])
        if len(row) != len(self.columns):
            raise ValueError(f"a row of {len(row)} values for {', '.join(self.columns)}")
        head, values = (struct.pack("<q", row[0]), row[1:]) if self.own_time else (b"", row)
        nulls, nullable, fixed, varying = 0, 0, [], []
        for field, labels, value in zip(self.fields, self.labels, values):
            if field.get("nullable"):
                nulls |= (value is None) << nullable
                nullable += 1
            elif value is None:
                raise ValueError(f"{field['name']} cannot be NULL")
            if isinstance(value, str):
                value = labels.get(value, value) if labels else value.encode()
            if field["type"] in ("utf8", "bytes", "json"):
                varying.append(value or b"")
            elif field["type"] in FORMATS:
                fixed.append(value or 0)
            elif len(value or b"") > struct.calcsize(self._format(field["type"])):
                raise ValueError(f"{field['name']} holds {field['type']}, not {len(value)} bytes")
            else:
                fixed.append(value or b"")
        return b"".join([head, nulls.to_bytes((nullable + 7) // 8, "little"), self.fixed.pack(*fixed),
                         *(struct.pack("<H", len(value)) for value in varying), *varying])


class Client:
    def __init__(self, directory, name):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A descriptor of the directory reaches the socket whatever the path's length.
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.socket.connect(f"/proc/self/fd/{opened}/ingest.sock")
        except OSError as error:
            raise LoomError(None, f"no daemon runs on {directory}: {error}") from error
        finally:
            os.close(opened)
        self.request, self.pending, self.pending_bytes, self.sources = 0, [], 0, {}
        self._send(0x01, b"LOOMSOCK" + struct.pack("<H", 1) + self._text(name))
        self._receive(0x81)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.sync()
        self.socket.close()

    def define(self, toml):
        """Defines the [[source]] tables of a TOML text; returns {name: id}. What exists already is no error."""
        body = self._ask(0x05, toml.encode(), 0x85)
        ids, at = {}, 2
        for _ in range(struct.unpack_from("<H", body)[0]):
            source, length = struct.unpack_from("<HH", body, at)
            ids[body[at + 4:at + 4 + length].decode()] = source
            at += 4 + length
        self.sources = {}
        return ids

    def catalog(self):
        """The sources and indexes of the directory, as PROTOCOL.md describes them."""
        return json.loads(self._ask(0x09, b"", 0x89))

    def push(self, source, records):
        """Adds rows, or packed payloads of one size, to the batch; full batches are sent."""
        if not self.sources:
            self.sources = {described["name"]: Source(described) for described in self.catalog()}
        if source not in self.sources:
            raise LoomError(5, f"unknown source {source}; define it first")
        layout = self.sources[source]
        if isinstance(records, (bytes, bytearray, memoryview)):
            if layout.size is None or len(records) % layout.size:
                raise ValueError(f"{len(records)} bytes are no whole payloads of {layout.size} bytes; push rows instead")
            records, step = memoryview(records), max(1, BATCH // layout.size) * layout.size
            for start in range(0, len(records), step):
                self._push(0x02, layout.id, struct.pack("<HH", layout.size, 0) + records[start:start + step])
            return
        batch = bytearray()
        for row in records:
            payload = layout.pack(row)
            batch += struct.pack("<H", len(payload)) + payload
            if len(batch) >= BATCH:
                self._push(0x03, layout.id, batch)
                batch = bytearray()
        if batch:
            self._push(0x03, layout.id, batch)

    def sync(self, durable=False):
        """Returns when all that was pushed is visible (or durable), with what became of it."""
        return self._counts(self._ask(0x04, bytes([durable, 0, 0, 0]), 0x84))

    def _push(self, kind, source, body):
        self.pending.append(struct.pack("<IBBH", len(body), kind, 0, source) + body)
        self.pending_bytes += len(body)
        if self.pending_bytes >= BATCH:
            self.flush()

    def flush(self):
        """Sends the batch without waiting for an answer."""
        data, self.pending, self.pending_bytes = b"".join(self.pending), [], 0
        try:
            self.socket.sendall(data)
        except OSError as error:
            self._receive(None)  # the daemon's last word says more
            raise LoomError(None, f"the connection failed: {error}") from error

    def _send(self, kind, body):
        self.pending.append(struct.pack("<IBBH", len(body), kind, 0, 0) + body)
        self.flush()

    def _ask(self, kind, body, answer):
        self.request += 1
        self._send(kind, struct.pack("<I", self.request) + body)
        return self._receive(answer)

    def _receive(self, answer):
        length, kind, _, _ = struct.unpack("<IBBH", self._read(8))
        body = self._read(length)
        if kind == 0xFF:
            code, size = struct.unpack_from("<HH", body, 4)
            raise LoomError(code, body[8:8 + size].decode())
        if kind == 0xFE:
            counts = self._counts(body[4:])
            raise LoomError(None, f"the daemon stopped; it stored {counts['stored']} records", counts)
        if kind != answer:
            raise LoomError(None, f"an answer of kind {kind:#x}, not {answer:#x}" if answer else "connection lost")
        return body if kind == 0x81 else body[4:]

    def _read(self, length):
        data = bytearray()
        while len(data) < length:
            try:
                piece = self.socket.recv(length - len(data))
            except OSError as error:
                raise LoomError(None, f"the connection failed: {error}") from error
            if not piece:
                raise LoomError(None, "the daemon closed the connection")
            data += piece
        return bytes(data)

    @staticmethod
    def _counts(body):
        position, received, stored, refused, dropped, length = struct.unpack_from("<4x5QH", body)
        return {"position": position, "received": received, "stored": stored, "refused": refused, "dropped": dropped,
                "reason": body[46:46 + length].decode()}

    @staticmethod
    def _text(text):
        return struct.pack("<H", len(text.encode())) + text.encode()
