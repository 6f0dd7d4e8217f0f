"""A load: a thread that sends to the daemon in each round, and then checks what the log has of it."""

import dataclasses
import threading
import time


class Failed(Exception):
    """A check failed."""


@dataclasses.dataclass
class Round:
    """One round: its beginning, and what happens to the daemon."""

    since: float
    action: str

    @property
    def ends_loaded(self):
        """Whether the daemon ends while the loads send, so that some of their records have no answer."""
        return self.action in ("kill", "stop")

    @property
    def ends(self):
        return self.ends_loaded or self.action == "quiet kill"


class Load(threading.Thread):
    """Sends from each `go` until `rest`. `work` is one such time, and `check` compares it with the log."""

    def __init__(self):
        super().__init__(daemon=True)
        self.running, self.resting, self.over = threading.Event(), threading.Event(), False
        self.error = None

    def run(self):
        try:
            while True:
                self.running.wait()
                if self.over:
                    return self.close()
                self.work()
                self.resting.set()
        except Exception as error:  # reported by the main thread
            self.error = error
            self.resting.set()

    def go(self):
        self.resting.clear()
        self.running.set()

    def rest(self):
        """Waits until everything that was sent has its answer, or is known to have none."""
        self.running.clear()
        if not self.resting.wait(120):
            raise Failed(f"{self} does not end within two minutes")
        if self.error:
            raise Failed(f"{self}: {self.error!r}")

    def end(self):
        self.over = True
        self.running.set()
        self.join(120)

    def close(self):
        """Ends what the load has started."""

    def sent(self):
        """The number of records so far."""
        return 0

    def begin(self):
        """Begins to count a round."""

    def skip(self):
        """Ends a round that cannot be compared."""

    def __str__(self):
        return type(self).__name__


class Pace:
    """Waits so that at most `rate` records a second pass; 0 for no limit."""

    def __init__(self, rate):
        self.rate, self.due = rate, time.monotonic()

    def batch(self, most):
        """The size of a batch: ten or more are sent in a second."""
        return most if not self.rate else max(1, min(most, int(self.rate / 10)))

    def passed(self, records):
        if self.rate:
            now = time.monotonic()
            self.due = max(self.due, now - 1) + records / self.rate
            time.sleep(max(0, self.due - now))


def compare_losses(source, found, reported, unsure, round):
    """Checks the losses of a source: besides the reported ones only those of records that have no answer."""
    if not reported <= found <= reported + unsure:
        raise Failed(f"{source}, {round.action}: {found} losses in the log, {reported} were reported, {unsure} are not known")
    if unsure and not round.ends_loaded:
        raise Failed(f"{source}, {round.action}: a connection ended by itself")
