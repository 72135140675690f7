"""A real server on a port of its own, in this process; lets the tests import what stands beside them."""

import sys
import threading
from pathlib import Path

import pytest

from aggregator.serve.jobs import Root
from aggregator.serve.judging import Judges
from aggregator.serve.server import Server
from aggregator.serve.site import Site

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "reports")]


@pytest.fixture
def serve():
    """Starts a server; `root` is the folder of the jobs, the seconds are those of a job and of a request's head."""
    running = []

    def start(root=None, *, time_s=60.0, head_s=5.0):
        judges = Judges(time_s=time_s)
        server = Server(0, Site(judges, None if root is None else Root(root)), head_s)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        running.append((server, judges, thread))
        return server

    yield start
    for server, judges, thread in running:
        server.shutdown()
        server.server_close()
        judges.close()
        thread.join()
