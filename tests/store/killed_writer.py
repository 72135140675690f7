"""Writes a store in child processes, kills each, and checks what they leave. Arguments: folder, kills, seed.

A program of its own, because it forks: it must have no other threads.
"""

import json
import os
import random
import signal
import sys
from functools import partial
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - once, before all forks

from aggregator.store import Store, StreamMeta

STREAMS = 5
SEGMENT_BYTES = 20_000
PERIOD = 65_521


def text(stream, start, length):
    """The bytes that belong at a place of a stream."""
    pattern = random.Random(stream).randbytes(PERIOD)
    start %= PERIOD
    return (pattern * (2 + length // PERIOD))[start : start + length]


def write_until_killed(folder, report, seed):
    choose = random.Random(seed)
    store = Store(folder, segment_bytes=SEGMENT_BYTES)
    while len(store.streams) < STREAMS:
        store.begin(StreamMeta(f"{len(store.streams)}.log", 1, len(store.streams), None))
    while True:
        for _ in range(choose.randrange(20)):
            stream = store.streams[choose.randrange(STREAMS)]
            store.append(stream.id, text(stream.id, stream.position, choose.randrange(300)))
        store.flush(sync=choose.random() < 0.1)
        positions = {number: stream.position for number, stream in store.streams.items()}
        os.write(report, json.dumps(positions).encode() + b"\n")


def run(act):
    """Do something in a child process; returns its pid."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return pid


def check(folder, reported):
    for read_only in (True, False):
        with Store(folder, read_only=read_only) as store:
            for number, position in reported.items():
                data = b"".join(store.read(int(number)))
                assert len(data) >= position
                assert data == text(int(number), 0, len(data))


def kill_one(folder, reports, seed):
    """Kill a writer after so many of its reports; returns the last of them."""
    reading, writing = os.pipe()
    pid = run(lambda: write_until_killed(folder, writing, seed))
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        seen = [lines.readline() for _ in range(reports)]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen += lines.readlines()
    return json.loads([line for line in seen if line.endswith(b"\n")][-1])


def main():
    folder, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    choose = random.Random(seed)
    for kill in range(kills):
        reported = kill_one(folder, choose.randrange(1, 30), seed + kill)
        if os.waitpid(run(partial(check, folder, reported)), 0)[1]:
            sys.exit(f"kill {kill}: what was reported as flushed is not there")


if __name__ == "__main__":
    main()
