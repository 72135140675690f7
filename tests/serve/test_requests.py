"""Odd, large and slow requests."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from asking import ROOT_TRACEBACK, ask, give, port_of, raw

from aggregator.serve import site


def head(server, line, *headers):
    host = f"127.0.0.1:{port_of(server)}"
    told = "".join(f"{header}\r\n" for header in (f"Host: {host}", f"Origin: http://{host}", *headers))
    return f"{line}\r\n{told}\r\n".replace("TOKEN", server.token).encode()


@pytest.mark.parametrize(
    ("line", "headers", "status"),
    [
        ("GET http://evil.example/TOKEN/ HTTP/1.1", [], 404),
        ("GET /TOKEN/../../etc/passwd HTTP/1.1", [], 404),
        ("GET /TOKEN/job/..%2f..%2fetc HTTP/1.1", [], 404),
        ("GET /TOKEN/upload/ HTTP/1.1", [], 404),
        ("OPTIONS /TOKEN/ HTTP/1.1", [], 501),
        ("DELETE /TOKEN/ HTTP/1.1", [], 501),
        ("POST /TOKEN/upload HTTP/1.1", [], 411),
        ("POST /TOKEN/upload HTTP/1.1", ["Transfer-Encoding: chunked"], 411),
        ("POST /TOKEN/upload HTTP/1.1", ["Transfer-Encoding: chunked", "Content-Length: 3"], 411),
        ("POST /TOKEN/upload HTTP/1.1", ["Content-Length: -3"], 411),
        ("POST /TOKEN/upload HTTP/1.1", ["Content-Length: 3", "Content-Length: 4"], 403),
        ("POST /TOKEN/upload HTTP/1.1", ["Content-Length: 99999999999999999999"], 413),
        ("POST /TOKEN/ HTTP/1.1", ["Content-Length: 0"], 404),
        ("GET /" + "a" * 70_000 + " HTTP/1.1", [], 414),
        ("GET /TOKEN/ HTTP/1.1", ["A: " + "b" * 70_000], 431),
        ("GET /TOKEN/ HTTP/1.1", [f"A{n}: b" for n in range(200)], 431),
    ],
)
def test_what_no_browser_sends_is_refused_in_a_word(serve, line, headers, status):
    server = serve()
    assert raw(server, head(server, line, *headers)).startswith(f"HTTP/1.0 {status} ".encode())


def test_a_connection_has_one_request(serve):
    server = serve()
    one = head(server, "GET /TOKEN/ HTTP/1.1", "Connection: keep-alive")
    assert raw(server, one + one).count(b"HTTP/1.0 200 ") == 1


def test_garbage_ends_nothing(serve):
    server = serve()
    for data in (b"", b"\0" * 100, b"\x16\x03\x01\x02\x00\x01\x00\n", b"GET\n", b"GET /\n\n"):
        raw(server, data)
    assert ask(server)[0] == 200


def test_what_is_too_large_is_refused_before_it_is_read(serve, monkeypatch):
    monkeypatch.setattr("aggregator.serve.server.MOST_UPLOAD", 1 << 20)
    status, problem, help_text = give(serve(), b"x" * (3 << 20))
    assert status == 413
    assert problem == "larger than 1 MB"
    assert "postmortem" in help_text


def test_who_sends_slowly_is_not_waited_for(serve):
    server = serve(head_s=0.3)
    with socket.create_connection(("127.0.0.1", port_of(server)), 10) as connection:
        began = time.monotonic()
        connection.settimeout(0.05)
        while time.monotonic() - began < 5:
            try:
                connection.sendall(b"G")  # a byte now and then
                if connection.recv(1) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - began < 2


def test_a_hundred_connections_that_send_nothing_hold_nobody_up_for_long(serve):
    server = serve(head_s=0.3)
    silent = [socket.create_connection(("127.0.0.1", port_of(server))) for _ in range(100)]
    began = time.monotonic()
    assert ask(server)[0] == 200
    assert time.monotonic() - began < 5
    for connection in silent:
        connection.close()


def test_who_goes_away_in_the_middle_of_an_upload_is_forgotten(serve):
    server = serve()
    assert raw(server, head(server, "POST /TOKEN/upload HTTP/1.1", "Content-Length: 99") + b"RuntimeError") == b""
    assert "What you gave" not in ask(server)[2]


def test_several_uploads_at_once_get_each_its_own_verdict(serve):
    server = serve()
    words = [f"boom number {n}" for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda word: give(server, ROOT_TRACEBACK.format(word).encode()), words))
    for word, report in zip(words, reports, strict=True):
        assert word in ask(server, report)[2]
        assert word in json.loads(ask(server, f"{report}.json")[2])["first_failure"]["evidence"][0]["text"]


def test_of_many_results_the_last_ones_are_kept(serve, monkeypatch):
    monkeypatch.setattr(site, "_KEPT", 2)
    server = serve()
    first, second, third = (give(server, ROOT_TRACEBACK.format(word).encode()) for word in ("one", "two", "three"))
    assert ask(server, first)[0] == 404
    assert [ask(server, report)[0] for report in (second, third)] == [200, 200]
    assert ask(server)[2].count(">pasted text</a>") == 2


def test_what_takes_too_long_is_ended_and_told(serve):
    status, problem, help_text = give(serve(time_s=0.01), b"RuntimeError: boom")
    assert (status, problem) == (504, "reading it took longer than 0.01 s")
    assert "postmortem" in help_text
