"""Small stores, and what can be read back from them."""

import random
import resource
from contextlib import contextmanager

from aggregator.store import Store, StreamMeta


def meta(number, **changes):
    return StreamMeta(**{"path": f"logs/rank_{number}.log", "device": 7, "inode": number, "generation": None} | changes)


def noise(size, seed=0):
    """Bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def contents(store):
    """All that a store says, by stream; whether its parts agree is checked on the way."""
    found = {}
    for number, stream in store.streams.items():
        data = b"".join(store.read(number))
        assert (stream.id, stream.position) == (number, len(data))
        assert (stream.head, stream.tail) == (data[:1024], data[-512:])
        found[number] = (stream.meta, data)
    return found


def stored(folder):
    with Store(folder, read_only=True) as store:
        return contents(store)


def fill(folder, seals=3, streams=3, segment_bytes=2000):
    """A store with so many segments and something in its journal; returns its contents."""
    with Store(folder, segment_bytes=segment_bytes) as store:
        for number in range(streams):
            store.begin(meta(number))
        turn = 0
        while len(list(folder.glob("*.parquet"))) < seals:
            store.append(turn % streams, noise(300, turn))
            store.flush()
            turn += 1
        store.append(0, b"last line\n")
        return contents(store)


def rewrite(path, data):
    """Change a file in its place; to empty it first would make some file systems wait for the disk."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


@contextmanager
def largest_file(size):
    """No file of this process can grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
