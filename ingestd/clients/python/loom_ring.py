"""Pushes records to a running ingestd through shared memory, with `libloom_client` and ctypes; standard library only.

    loom = loom_ring.connect("/var/lib/loom")           # or: with loom_ring.connect(…) as loom: it syncs at its end
    source = loom.define('[[source]]\\nname = "ticks"\\ntime = "own"\\n[[source.field]]\\nname = "n"\\ntype = "u64"')
    loom.push(source, struct.pack("<Q", 7))             # one payload, without the time: it is the time of the call
    print(loom.sync())                                  # visible now: {'received': 1, 'stored': 1, …}
    loom.close()

The library is `libloom_client.so` beside this file; without one, the one that the loader finds. `library` names another. A client outlives
its daemon: records wait in shared memory, and the next daemon stores them; after 60 s without a daemon, calls raise an error.

A call through ctypes takes about a microsecond; rows and batches are faster with `loom_client`, over the socket.
"""

import ctypes
import os


class LoomError(Exception):
    """The library or the daemon refused a call."""


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("received", "stored", "refused", "dropped", "position")]


class RingClient:
    """One thread may use it at a time, and no fork of the process."""

    def __init__(self, directory, ring_bytes, library):
        self.library = ctypes.CDLL(library)
        client = ctypes.c_void_p
        for name, result, arguments in [
            ("loom_connect", ctypes.c_int, [ctypes.c_char_p, ctypes.c_uint64, ctypes.POINTER(client)]),
            ("loom_define", ctypes.c_int, [client, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint16)]),
            ("loom_push", ctypes.c_int, [client, ctypes.c_uint16, ctypes.c_char_p, ctypes.c_size_t]),
            ("loom_sync", ctypes.c_int, [client, ctypes.POINTER(Counts)]),
            ("loom_error", ctypes.c_char_p, [client]),
            ("loom_close", None, [client]),
        ]:
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        self.client = client()
        try:
            self._check(self.library.loom_connect(os.fsencode(directory), ring_bytes, ctypes.byref(self.client)))
        except LoomError:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.sync()
        finally:
            self.close()

    def define(self, toml):
        """Defines the first [[source]] of a TOML text, opens a ring for it, and returns its number."""
        source = ctypes.c_uint16()
        self._check(self.library.loom_define(self.client, toml.encode(), ctypes.byref(source)))
        return source.value

    def push(self, source, payload):
        """Pushes one packed little-endian payload (bytes)."""
        if self.library.loom_push(self.client, source, payload, len(payload)):
            self._check(-1)

    def sync(self):
        """Waits until all pushed records are visible, and returns the counts of this connection."""
        counts = Counts()
        self._check(self.library.loom_sync(self.client, ctypes.byref(counts)))
        return {name: getattr(counts, name) for name, _ in Counts._fields_}

    def close(self):
        """Ends the connection. The daemon takes the pushed records; only a sync before it shows that."""
        client, self.client = self.client, ctypes.c_void_p()
        self.library.loom_close(client)

    def _check(self, failed):
        if failed:
            raise LoomError(self.library.loom_error(self.client).decode())


def connect(directory, ring_bytes=0, library=None):
    """Connects to the daemon that runs on a Loom directory. `ring_bytes` is the size of each ring, 0 for 8 MiB."""
    if library is None:
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libloom_client.so")
        library = beside if os.path.exists(beside) else "libloom_client.so"
    return RingClient(directory, ring_bytes, library)
