"""The HTTP of it: one request a connection, each within a time, so many at once, every answer with the same headers."""

from __future__ import annotations

import io
import secrets
import socket
import sys
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any

from aggregator.serve.guard import below, refusal
from aggregator.serve.site import MOST_UPLOAD, NOTHING_HERE, Response, problem
from aggregator.serve.task import TOO_MUCH
from aggregator.streams import complain

if TYPE_CHECKING:
    from aggregator.serve.site import Site

MOST_REQUESTS = 64
"""Connections that are served at once; more wait."""
_HEAD_S, _BODY_S, _ANSWER_S = 5.0, 120.0, 60.0
"""Seconds for a request's head, its body, and for taking the answer."""
_LAST_WORD_S = 5.0
"""Seconds for which what a refused client still sends is read: else the refusal would not reach it."""
_PIECE = 1 << 16
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Server(ThreadingTCPServer):
    """Serves a site on 127.0.0.1. Not an `HTTPServer`, which asks the network for its name."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, site: Site, head_s: float = _HEAD_S) -> None:
        """Listen, at a port of the system's choice if it is 0.

        Raises:
            OSError: the port is taken, or not for us.
        """
        self.site = site
        self.token = secrets.token_urlsafe(24)
        self.head_s = head_s
        self._slots = threading.BoundedSemaphore(MOST_REQUESTS)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def url(self) -> str:
        """Where it is, with the secret."""
        return f"http://127.0.0.1:{self.server_address[1]}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base
        """On a thread of its own, as soon as one is free: a head or an answer that does not come is not waited for."""
        self._slots.acquire()
        try:
            super().process_request(request, client_address)
        except BaseException:  # there is no thread that would do it
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as in the base
        """One request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002 - as in the base
        """A client that goes away is no error; of anything else the kind is told, not what was in it."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            complain(f"error: this is a bug: {type(error).__name__} in a request\n")


class _Wire(io.RawIOBase):
    """What comes from a client, until a moment: one that sends a byte now and then does not stay longer."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self.allow(seconds)

    def allow(self, seconds: float) -> None:
        """From now on."""
        self._deadline = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - what the base takes has no public type before 3.12
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """One request: HTTP/1.0, so that each has a connection of its own, and nothing can be hidden behind it."""

    server: Server
    server_version = "denpex-agg"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._wire = _Wire(self.connection, self.server.head_s)
        self.rfile = io.BufferedReader(self._wire, _PIECE)

    def do_GET(self) -> None:
        """A page."""
        path = self._path()
        if path is not None:
            self._send(self.server.site.get(path))

    def do_POST(self) -> None:
        """An upload."""
        path = self._path()
        if path is None:
            return
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") is not None or not (length.isascii() and length.isdigit()):
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
        elif len(length) > 15 or int(length) > MOST_UPLOAD:  # noqa: PLR2004 - no number of a size that anybody has
            what = f"larger than {MOST_UPLOAD >> 20} MB"
            self._refuse(TOO_MUCH, what, "run denpex-agg postmortem on it, which takes any size")
        else:
            self._wire.allow(_BODY_S)
            data = self.rfile.read(int(length))
            if len(data) == int(length):  # else the client has gone
                self._send(self.server.site.post(path, self.path.partition("?")[2], data))

    def _path(self) -> str | None:
        """What is asked for, below our secret; None if the request has been refused."""
        if reason := refusal(self.command, self.headers):
            self._refuse(HTTPStatus.FORBIDDEN, reason)
            return None
        path = below(self.path, self.server.token)
        if path is None:
            self._refuse(HTTPStatus.NOT_FOUND, *NOTHING_HERE)
        return path

    def _refuse(self, status: int, what: str, help_text: str = "") -> None:
        """Answers, and reads what still comes: a connection closed over unread bytes takes the answer with it."""
        self._send(problem(status, what, help_text, is_upload=self.command == "POST"))
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self._wire.allow(_LAST_WORD_S)
            while self._wire.read(_PIECE):
                pass

    def _send(self, response: Response) -> None:
        body = response.body.encode()
        self.connection.settimeout(_ANSWER_S)
        self.send_response(response.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", response.policy)
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - they quote the request
        """What the base refuses."""
        self._refuse(HTTPStatus(code), HTTPStatus(code).phrase)

    def log_message(self, *_: object) -> None:
        """Nothing: addresses hold the secret."""
