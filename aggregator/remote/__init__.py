"""Logs behind URLs: `s3://bucket/run`, `gs://…`, `sftp://host/…`, whatever fsspec can open."""

from __future__ import annotations

import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_LOCAL = "file://"
_USER = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"\?.*", re.DOTALL)


def is_url(path: str) -> bool:
    """Whether a path on the command line is a URL."""
    return _URL.match(path) is not None and not path.startswith(_LOCAL)


def local_path(path: str) -> str:
    """A path on the command line without `file://`."""
    return path[len(_LOCAL) :] if path.startswith(_LOCAL + "/") else path


def shown(url: str) -> str:
    """A URL without what may be secret: user, password, signature."""
    return _QUERY.sub("", _USER.sub("", url))
