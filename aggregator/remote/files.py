"""Bytes behind a URL, read in ranges, and what can go wrong there in words that hold no secret.

Whatever a file system's library raises becomes an `OSError` with a sentence: no caller knows the libraries.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from aggregator.errors import UsageError
from aggregator.remote import shown

if TYPE_CHECKING:
    from parsers.records import Remote

FileSystem: TypeAlias = Any
"""One of fsspec's, which has no types."""
_MOST_AHEAD = 8 << 20
"""Bytes of a range, at most: a request takes the time of a megabyte or two."""
_GROWTH = 4
_TALKERS = ("aiobotocore", "asyncio", "botocore", "fsspec", "gcsfs", "paramiko", "s3fs", "urllib3")
_WORDS = (
    (FileNotFoundError, "no such file or folder"),
    (PermissionError, "permission denied"),
    (TimeoutError, "no answer in time"),
)
_MOST_TOLD = 200

T = TypeVar("T")


class RemoteFile:
    """A file behind a URL; reading on fetches ever larger ranges, so that few requests are made and little is kept."""

    key = None

    def __init__(self, remote: Remote, size: int) -> None:
        """Nothing is asked of the server; `size` is in bytes, as the listing told it."""
        self._remote = remote
        self.size = size
        self._place, self._block = 0, b""

    def read_at(self, size: int, place: int) -> bytes:
        """At most `size` bytes from `place` on; none at the end.

        Raises:
            OSError: they cannot be had.
        """
        end = min(place + size, self.size)
        if end <= place:
            return b""
        if not self._place <= place < self._place + len(self._block):
            goes_on = self._block and place == self._place + len(self._block)
            ahead = min(_GROWTH * len(self._block), _MOST_AHEAD) if goes_on else 0
            stop = min(max(end, place + ahead), self.size)
            self._block = guarded(
                self._remote.url, lambda fs: bytes(fs.cat_file(self._remote.path, start=place, end=stop))
            )
            self._place = place
            if not self._block:
                raise OSError("ends before the size that its listing told")
        return self._block[place - self._place : end - self._place]

    def close(self) -> None:
        """Lets go of what is kept."""
        self._block = b""


def file_system(url: str) -> tuple[FileSystem, str]:
    """The file system of a URL, and the path in it.

    Raises:
        OSError: its server cannot be reached, or does not let us in.
        UsageError: its library is not installed, or there is none.
    """
    try:
        import fsspec  # noqa: PLC0415 - an optional extra
        from fsspec.core import url_to_fs  # noqa: PLC0415 - as above
    except ImportError:
        raise UsageError("URLs need fsspec", where=shown(url), help="pip install 'denpex-agg[remote]'") from None
    _hush()
    scheme = url.partition("://")[0]
    try:
        fsspec.get_filesystem_class(scheme)
        options = _options(scheme)
    except ImportError as error:
        raise UsageError(f"{scheme}:// needs another library", where=shown(url), help=str(error)) from None
    except ValueError as error:
        raise UsageError("not a URL that can be read", where=shown(url), help=_reason(url, error)) from None
    try:
        found: tuple[FileSystem, str] = url_to_fs(url, **options)
    except Exception as error:  # noqa: BLE001 - each library has exceptions of its own
        raise OSError(_reason(url, error)) from None
    return found


def guarded(url: str, work: Callable[[FileSystem], T]) -> T:
    """Does something with the file system of a URL.

    Raises:
        OSError: it failed; the text says why.
        UsageError: see `file_system`.
    """
    fs = file_system(url)[0]
    try:
        return work(fs)
    except Exception as error:  # noqa: BLE001 - each library has exceptions of its own
        raise OSError(_reason(url, error)) from None


def heads(url: str, paths: Sequence[str], size: int) -> list[bytes | str]:
    """The first bytes of files, or why they cannot be had; all asked for at once where the library can."""

    def ask(fs: FileSystem) -> list[bytes | str]:
        told = fs.cat_ranges(list(paths), 0, size, on_error="return")
        return [_reason(url, one) if isinstance(one, Exception) else bytes(one) for one in told]

    return guarded(url, ask)


def _reason(url: str, error: Exception) -> str:
    """What went wrong, without what the URL holds of secrets."""
    if (word := next((word for kind, word in _WORDS if isinstance(error, kind)), None)) is not None:
        return word
    text = " ".join(str(error).split())
    for secret in filter(None, (urlsplit(url).password, unquote(urlsplit(url).password or ""), urlsplit(url).query)):
        text = text.replace(secret, "…")
    text = re.sub(r"(?<=://)[^/\s]*@", "", text)[:_MOST_TOLD]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@cache
def _hush() -> None:
    """What the libraries log of their own, with tracebacks, does not go to standard error."""
    for name in _TALKERS:
        logging.getLogger(name).addHandler(logging.NullHandler())


def _options(scheme: str) -> dict[str, Any]:
    return {"host_key_policy": _known_hosts()} if scheme in {"sftp", "ssh"} else {}


def _known_hosts() -> Any:  # noqa: ANN401 - of an optional library without types
    """Who speaks for a host is asked of the user's known_hosts, as ssh does: fsspec's own rule believes everybody."""
    import paramiko  # noqa: PLC0415 - an optional library

    class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc]  # it has no types
        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:  # noqa: ANN401, ARG002
            known = paramiko.HostKeys()
            for path in (Path("~/.ssh/known_hosts").expanduser(), Path("/etc/ssh/ssh_known_hosts")):
                if path.is_file():
                    known.load(str(path))
            if not known.check(hostname, key):
                raise paramiko.SSHException(f"{hostname} is not in known_hosts with this key: ssh to it once")

    return KnownHosts()
