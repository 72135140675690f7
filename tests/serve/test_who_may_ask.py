"""Who gets an answer: the page itself, and nobody else."""

import pytest
from asking import ask, port_of, raw

OTHERS = [
    {"Host": "evil.example"},
    {"Host": "127.0.0.1@evil.example"},
    {"Host": "127.0.0.1.evil.example:80"},
    {"Host": None},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


def test_the_page_is_there_for_who_knows_the_address(serve):
    server = serve()
    status, headers, body = ask(server)
    assert status == 200
    assert "Which rank failed first?" in body
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert not [name for name in headers if name.startswith("Access-Control")]


@pytest.mark.parametrize("token", ["", "wrong", "%FF"])
def test_a_wrong_or_missing_secret_is_told_nothing(serve, token):
    server = serve()
    status, _, body = ask(server, token=token)
    assert status == 404
    assert server.token not in body
    assert ask(server, token=server.token[:-1])[0] == 404
    assert raw(server, b"GET /\xff\xfe/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").startswith(b"HTTP/1.0 404 ")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("headers", OTHERS)
def test_what_another_site_makes_a_browser_send_is_refused(serve, headers, method):
    server = serve()
    body = None if method == "GET" else b"RuntimeError: boom"
    if headers == {"Host": None}:
        sent = f"{method} /{server.token}/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n".encode()
        assert raw(server, sent).startswith(b"HTTP/1.0 403 ")
    else:
        assert ask(server, "upload", method=method, body=body, headers=headers)[0] == 403
    assert "What you gave" not in ask(server)[2]


def test_an_upload_needs_the_pages_own_origin(serve):
    assert ask(serve(), "upload", method="POST", body=b"RuntimeError: boom", headers={"Origin": None})[0] == 403


def test_another_port_of_a_tunnel_is_the_same_page(serve):
    server = serve()
    assert ask(server, headers={"Host": "localhost:8642", "Sec-Fetch-Site": "none"})[0] == 200
    theirs = {"Host": "localhost:8642", "Origin": "http://localhost:8642"}
    assert ask(server, "nothing", method="POST", body=b"", headers=theirs)[0] == 404


def test_a_header_that_is_given_twice_is_refused(serve):
    server = serve()
    head = f"GET /{server.token}/ HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n"
    assert raw(server, head.encode()).startswith(b"HTTP/1.0 403 ")


def test_it_listens_on_this_machine_only(serve):
    server = serve()
    assert server.server_address[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{port_of(server)}/{server.token}/"
    assert len(server.token) == 32
