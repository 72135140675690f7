"""Asks a server as a browser on its own page does, or otherwise."""

import http.client
import io
import json
import re
import socket
import zipfile
from contextlib import closing

ROOT_TRACEBACK = """\
[rank2]: Traceback (most recent call last):
[rank2]:   File "/home/me/train.py", line 118, in main
[rank2]:     loss = model(batch).loss
[rank2]: RuntimeError: {}
"""


def port_of(server):
    return server.server_address[1]


def ask(server, path="", *, method="GET", body=None, token=None, headers=None):
    """The status, headers and body of an answer."""
    origin = f"http://127.0.0.1:{port_of(server)}"
    sent = {"Host": origin.removeprefix("http://")} | ({"Origin": origin} if method == "POST" else {}) | (headers or {})
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=30)) as connection:
        target = f"/{server.token if token is None else token}/{path}"
        connection.request(method, target, body, {name: value for name, value in sent.items() if value is not None})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def give(server, data, name=""):
    """Uploads; gives the address of the report, or what is wrong."""
    status, _, body = ask(server, f"upload?name={name}", method="POST", body=data)
    told = json.loads(body)
    return told["report"] if status == 200 else (status, told["problem"], told["help"])


def raw(server, data, *, timeout_s=10):
    """What comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout_s) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def zip_of(folder, below):
    """A zip of a folder, with names from `below` on."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            archive.write(file, file.relative_to(below))
    return out.getvalue()


def job_ids(page):
    """Names of jobs to their ids, as the list has them."""
    return {name: job for job, name in re.findall(r'<a href="job/(\w+)">(.*?)</a>', page)}
