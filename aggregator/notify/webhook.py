"""Posts a message to a webhook that understands Slack's JSON (Slack, Mattermost, Teams relays, …).

By the standard library alone. The URL is a secret, and HTTP libraries that retry by themselves log it when they do.
"""

from __future__ import annotations

import json
import random
import time
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from aggregator import __version__
from aggregator.errors import UsageError
from aggregator.notify import FailureMessage, NotifyError
from aggregator.notify.slack import slack_text

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 5.0
"""For the connection and for each wait for an answer."""
MAX_TRIES = 5
TOTAL_S = 120.0
"""No try begins later than this after the first."""
MAX_RETRY_AFTER_S = 60
FIRST_PAUSE_S = 2.0

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class WebhookNotifier:
    """Posts `{"text": …}`, and again after ever longer pauses if the service is not reached, busy or broken.

    Redirects are not followed, and of the answer only its head is read. The environment's proxies are used for https.
    """

    name = "--webhook"

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the URL; nothing is sent yet. `clock` gives seconds.

        Raises:
            UsageError: it is not https (http to this machine is allowed), or no URL at all.
        """
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
            host.encode("idna")  # as the resolver will
            is_sound = parts.port != 0 and bool(host) and url.isascii() and url.isprintable() and " " not in url
        except ValueError:
            is_sound = False
        is_local = is_sound and parts.scheme == "http" and host in _LOCAL
        if not is_sound or "@" in parts.netloc or not (parts.scheme == "https" or is_local):
            # Without the URL: it is a secret.
            raise UsageError(
                "--webhook takes an https URL without a user name",
                help="such as https://hooks.slack.com/services/...; http only to localhost",
            )
        self._url = url
        self._place = f"{parts.scheme}://{host}"
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._clock = clock
        # Not `build_opener`, which follows redirects: here one is an answer like any other that is no success.
        self._opener = OpenerDirector()
        for handler in (ProxyHandler({} if is_local else None), HTTPHandler(), HTTPSHandler()):
            self._opener.add_handler(handler)

    def send(self, message: FailureMessage) -> None:
        """Post the message, at most `MAX_TRIES` times.

        Raises:
            NotifyError: the service refused it, or could not be reached in time.
        """
        body = json.dumps({"text": slack_text(message)}).encode()
        deadline = self._clock() + TOTAL_S
        for tries in range(1, MAX_TRIES + 1):
            pause_s = FIRST_PAUSE_S * 2 ** (tries - 1) * random.uniform(0.5, 1)  # noqa: S311 - guards nothing
            try:
                status, retry_after_s = self._post(body)
            except (OSError, HTTPException) as error:
                problem = f"{self._place} cannot be reached: {_reason(error)}"
            else:
                if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
                    return
                problem = f"{self._place} answered {status}"
                if status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise NotifyError(problem)
                pause_s = max(pause_s, retry_after_s)
            if tries == MAX_TRIES or self._clock() + pause_s > deadline:
                break
            self._sleep(pause_s)
        raise NotifyError(f"{problem} (tried {tries} times)")

    def _post(self, body: bytes) -> tuple[int, float]:
        """The status of the answer, and how many seconds it asks to wait (0 if it does not, or by a date)."""
        headers = {"Content-Type": "application/json", "User-Agent": f"denpex-agg/{__version__}"}
        request = Request(self._url, body, headers)  # noqa: S310 - the scheme was checked
        with self._opener.open(request, timeout=self._timeout_s) as answer:
            asked = answer.headers.get("Retry-After", "")
            is_number = asked.isascii() and asked.isdigit()
            return answer.status, min(int(asked[:9]), MAX_RETRY_AFTER_S) if is_number else 0


def _reason(error: Exception) -> str:
    """In the system's words or by its type: the text of an error may quote the URL."""
    cause = error.reason if isinstance(error, URLError) else error
    return (cause.strerror if isinstance(cause, OSError) else None) or type(cause).__name__
