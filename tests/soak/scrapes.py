"""A target of Prometheus that the daemon scrapes: it numbers its answers, and each is one record. It also takes the webhooks of rules."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from load import Failed
from stored import quoted

SERIES = 50
CONFIG = """
[[scrape]]
job = "soak"
targets = ["127.0.0.1:{port}"]
every = "500ms"
"""
SERIES_NAMES = [f'soak_series{{k="{k}"}}' for k in range(SERIES)]
COLUMNS = ["soak_answers_total", "up", "scrape_samples_scraped", *SERIES_NAMES]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(self.server.target.metrics().encode())

    def do_POST(self):
        self.server.target.posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(b"")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Prints nothing."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Prints nothing: a daemon that is killed closes its connections."""


class Target:
    """Serves from the beginning to the end, also between rounds."""

    def __init__(self):
        self.lock, self.answers, self.posts = threading.Lock(), 0, []
        # The last answer that was checked, and when.
        self.checked, self.checked_at = 0, time.time()
        server = Server(("127.0.0.1", 0), Handler)
        server.target = self
        self.port = server.server_address[1]
        self.source, self.config = f"metrics/soak/127.0.0.1:{self.port}", CONFIG.format(port=self.port)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def metrics(self):
        with self.lock:
            self.answers += 1
            number = self.answers
        series = [f"{name} {number + k}" for k, name in enumerate(SERIES_NAMES)]
        return "\n".join(["# TYPE soak_answers counter", f"soak_answers_total {number}", *series, ""])

    def skip(self):
        self.checked, self.checked_at = self.answers, time.time()

    def check(self, stored, losses, round):
        """Checks that every answer since the last check is a whole record, once, or counted as lost, except late ones and one that a restart cut."""
        lost = losses.pop(self.source, {})
        # A scrape does not wait for a log without room.
        dropped = lost.pop("overload", 0)
        if lost:
            raise Failed(f"scrapes: {lost} are lost")
        answered, now, deadline = self.answers, time.time(), time.monotonic() + 60
        while True:
            # A scrape has the time of its beginning.
            rows = stored.rows(self.source, self.checked_at - 1, quoted(COLUMNS))
            # The soak may answer too late for a scrape; the daemon then notes that the target is down.
            late = sum(up == 0 and all(value is None for value in [number, *series]) for number, up, _, *series in rows)
            rows = [row for row in rows if row[1] != 0]
            for number, up, samples, *series in rows:
                if (up, samples, series) != (1, SERIES + 1, [number + k for k in range(SERIES)]):
                    raise Failed(f"scrapes, {round.action}: the record of answer {number} is not whole: up is {up}, {samples} samples, {series}")
            numbers = [int(row[0]) for row in rows if row[0] > self.checked]
            if len(numbers) != len(set(numbers)):
                raise Failed(f"scrapes, {round.action}: {len(numbers)} records, {len(set(numbers))} different ones")
            missing = set(range(self.checked + 1, answered + 1)) - set(numbers)
            if numbers and len(missing) <= round.ends + late + dropped:
                self.checked, self.checked_at = max(answered, *numbers), now
                return
            if time.monotonic() > deadline:
                raise Failed(f"scrapes, {round.action}: after a minute, of the answers {self.checked + 1} to {answered} are missing {sorted(missing)}")
            time.sleep(0.2)
