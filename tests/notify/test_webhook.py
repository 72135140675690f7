"""The webhook against a real server on this machine."""

import contextlib
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from aggregator.errors import UsageError
from aggregator.notify import NotifyError
from aggregator.notify.webhook import MAX_RETRY_AFTER_S, MAX_TRIES, WebhookNotifier

SECRET = "T000/B000/verysecret"


class Server(ThreadingHTTPServer):
    """Answers as it is told, one item of `answers` a request (the last for ever), and keeps what it was sent."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = [(200, {})]
        self.body = b"ok"
        self.received = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.url = f"http://127.0.0.1:{self.server_port}/services/{SECRET}"

    def handle_error(self, request, client_address):
        """A client that hangs up early is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.received.append((self.path, self.headers["Content-Type"], body))
        server.may_answer.wait(5)
        status, headers = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(server.body)

    do_GET = do_POST  # noqa: N815 - the name that http.server looks for

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join()


class Waits(list):
    """Sleeps that take no time but move the clock."""

    def clock(self):
        return sum(self)


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def hook(server, waits):
    return WebhookNotifier(server.url, timeout_s=2, sleep=waits.append, clock=waits.clock)


def test_the_message_is_posted_once_as_json(server, hook, waits, message):
    hook.send(message(text="<!channel> it's full"))
    [(path, content_type, body)] = server.received
    assert path == f"/services/{SECRET}"
    assert content_type == "application/json"
    payload = json.loads(body)
    assert list(payload) == ["text"]
    assert "&lt;!channel&gt; it's full\n```" in payload["text"]
    assert waits == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(server, hook, message, status):
    server.answers = [(status, {"Location": "/elsewhere"})]
    with pytest.raises(NotifyError, match=f"^http://127.0.0.1 answered {status}$"):
        hook.send(message())
    assert len(server.received) == 1


def test_a_refusal_is_final(server, hook, message):
    server.answers = [(404, {})]
    with pytest.raises(NotifyError, match=r"answered 404$"):
        hook.send(message())
    assert len(server.received) == 1


def test_a_broken_service_is_asked_again_after_a_pause(server, hook, waits, message):
    server.answers = [(500, {}), (200, {})]
    hook.send(message())
    assert len(server.received) == 2
    assert 1 <= waits[0] <= 2


def test_pauses_grow_and_the_tries_end(server, hook, waits, message):
    server.answers = [(503, {})]
    with pytest.raises(NotifyError, match=r"answered 503 \(tried 5 times\)$"):
        hook.send(message())
    assert len(server.received) == MAX_TRIES
    assert [2**n <= pause <= 2 ** (n + 1) for n, pause in enumerate(waits)] == [True] * (MAX_TRIES - 1)


@pytest.mark.parametrize(
    ("asked", "least", "most"),
    [("7", 7, 7), ("99999", 60, 60), ("9" * 5000, 60, 60), ("²", 1, 2),
     ("-5", 1, 2), ("Wed, 21 Oct 2099 07:28 GMT", 1, 2)],
    ids=["7", "99999", "digits", "superscript", "negative", "date"],
)  # fmt: skip
def test_a_busy_service_says_how_long_to_wait_within_bounds(server, hook, waits, message, asked, least, most):
    server.answers = [(429, {"Retry-After": asked}), (200, {})]
    hook.send(message())
    assert len(server.received) == 2
    assert least <= waits[0] <= most <= MAX_RETRY_AFTER_S


def test_it_gives_up_after_two_minutes_in_all(server, hook, waits, message):
    server.answers = [(429, {"Retry-After": "50"})]
    with pytest.raises(NotifyError, match="tried 3 times"):
        hook.send(message())
    assert waits == [50, 50]


def test_a_server_that_never_answers_is_left_alone(server, waits, message):
    server.may_answer.clear()
    hook = WebhookNotifier(server.url, timeout_s=0.02, sleep=waits.append, clock=waits.clock)
    with pytest.raises(NotifyError, match="cannot be reached: TimeoutError"):
        hook.send(message())
    assert len(waits) == MAX_TRIES - 1


def test_nobody_listening_is_told_in_the_words_of_the_system(waits, message):
    with Server() as server:
        url = server.url
    with pytest.raises(
        NotifyError, match=r"^http://127.0.0.1 cannot be reached: Connection refused \(tried 5 times\)$"
    ):
        WebhookNotifier(url, sleep=waits.append).send(message())


def test_a_huge_answer_is_not_read(server, hook, message):
    server.body = b"x" * 20_000_000
    hook.send(message())


@pytest.mark.parametrize("junk", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 " + b"x" * 100_000, b""])
def test_what_is_no_http_is_a_failed_try(server, hook, waits, message, monkeypatch, junk):
    def answer(handler):
        handler.wfile.write(junk)
        handler.close_connection = True

    monkeypatch.setattr(Handler, "do_POST", answer)
    with pytest.raises(NotifyError, match="cannot be reached"):
        hook.send(message())
    assert len(waits) == MAX_TRIES - 1


def test_http_to_this_machine_never_goes_through_a_proxy(server, hook, message, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    hook.send(message())
    assert len(server.received) == 1


@pytest.mark.parametrize(
    "url",
    ["", "hooks.slack.com/services/x", "http://hooks.slack.com/x", "ftp://localhost/x", "file:///etc/passwd", "https://",
     "https://user:verysecret@host/x", "http://localhost@evil.example/verysecret", "https://host:99999/verysecret",
     "https://ho st/verysecret", "https://host/verysecret\r\nHost: x", "https://[::1/verysecret", "https://höst/x",
     "https://a..b/verysecret", f"https://{'a' * 64}.example/verysecret"],
)  # fmt: skip
def test_other_urls_are_refused_at_the_start_without_being_repeated(url):
    with pytest.raises(UsageError) as refused:
        WebhookNotifier(url)
    assert refused.value.help
    assert "verysecret" not in f"{refused.value} {refused.value.help} {refused.value.where}"


@pytest.mark.parametrize(
    "url", ["https://hooks.slack.com/services/x", "http://localhost:8065/hooks/x", "http://[::1]/x"]
)
def test_https_and_this_machine_are_accepted(url):
    WebhookNotifier(url)


@pytest.mark.parametrize("status", [404, 500])
def test_the_url_is_in_no_error_and_no_log(server, hook, message, caplog, capfd, status):
    caplog.set_level(logging.DEBUG)
    server.answers = [(status, {"Location": server.url})]
    with pytest.raises(NotifyError) as failure:
        hook.send(message())
    told = [str(failure.value), repr(hook), caplog.text, *capfd.readouterr()]
    with contextlib.closing(server.socket):
        pass  # nobody answers from now on
    with pytest.raises(NotifyError) as failure:
        hook.send(message())
    told += [str(failure.value), caplog.text, *capfd.readouterr()]
    assert not any(SECRET in text or "/services" in text for text in told)
