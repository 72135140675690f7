"""Who may ask: the user's own browser on our own page, and nobody who got it to ask for him.

A page of any site can make a browser send requests to 127.0.0.1. It can neither read our address's secret nor send our
origin; and a name of its own that it lets lead here (DNS rebinding) is in `Host`.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from email.message import Message

_HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::\d{1,5})?", re.ASCII | re.IGNORECASE)
"""Any port: behind `ssh -L` the browser knows another one."""
_OURS = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of our own page, and of an address that the user entered."""
_ONCE = ("Host", "Origin", "Sec-Fetch-Site", "Content-Length")


def refusal(method: str, headers: Message) -> str | None:
    """Why a request is not answered, or None."""
    told = {name: headers.get_all(name, []) for name in _ONCE}
    if any(len(values) > 1 for values in told.values()):
        return "a header is given twice"
    host = "".join(told["Host"])
    if not _HOST.fullmatch(host):
        return "only requests to 127.0.0.1 or localhost are answered"
    origin = told["Origin"]
    if (origin or method == "POST") and origin != [f"http://{host}"]:
        return "only requests of this page itself are answered"
    if not _OURS.issuperset(told["Sec-Fetch-Site"]):
        return "only requests of this page itself are answered"
    return None


def below(target: str, token: str) -> str | None:
    """What a request's target names below the secret part of our address; None if that is not in it."""
    path, _, _ = target.partition("?")
    first, slash, rest = path.removeprefix("/").partition("/")
    is_ours = path.startswith("/") and hmac.compare_digest(first.encode("utf-8", "surrogatepass"), token.encode())
    return rest if is_ours and slash else None
