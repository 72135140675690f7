"""A collector over a folder of real files, and what it has stored of them."""

import os

from aggregator.collect.collector import GRACE, Collector
from aggregator.collect.folder import Folder
from aggregator.store import Store

APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class Followed:
    """`look` is a listing and a read of everything, `tick` a read between listings; both take some seconds."""

    def __init__(self, base, **options):
        self.logs, self.state, self.now, self.arrived = base / "logs", base / "state", 100.0, []
        self.logs.mkdir(exist_ok=True)
        self._options = options
        self.start()

    def start(self):
        self.store = Store(self.state)
        self.collector = Collector(Folder([str(self.logs)]), self.store, **self._options)

    def close(self):
        self.collector.close()
        self.store.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def restart(self):
        self.close()
        self.start()

    def tick(self, seconds=1.0):
        self.now += seconds
        self.arrived += self.collector.poll(self.now)
        while self.collector.busy:
            self.arrived += self.collector.poll(self.now)
        self.store.flush()

    def look(self, seconds=1.0):
        self.now += seconds
        self.collector.scan(self.now)
        self.tick(0.0)
        if self.collector.wants_scan:
            self.collector.scan(self.now)
            self.tick(0.0)

    def settle(self):
        """Long enough for whatever is held back or waited for."""
        for _ in range(6):
            self.look(GRACE / 4)

    def contents(self):
        """What is stored, one content a stream."""
        return sorted(b"".join(self.store.read(number)) for number in self.store.streams)

    def named(self):
        """The same of the streams that are in the folder, by name."""
        return {
            stream.meta.path: b"".join(self.store.read(number))
            for number, stream in self.store.streams.items()
            if stream.meta.ended is None
        }

    def skipped(self):
        return {note.path: note.reason for note in self.collector.skipped}


def lines(first, last, size=0):
    """Numbered lines, each of at least `size` bytes."""
    return b"".join(f"[rank0] step {number} ".encode().ljust(size, b".") + b"\n" for number in range(first, last))


def append(path, data):
    """As a writer that has the file open for appending."""
    with path.open("ab", buffering=0) as file:
        file.write(data)
