"""The pages that are not reports. All that is put into them is escaped; nothing in them runs but our own script."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from aggregator.reports import html

if TYPE_CHECKING:
    from aggregator.serve.task import Answer

_HERE = Path(__file__).parent
_REPORT = Path(html.__file__).parent
_FRAMES = "frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Upload:
    """A result that is kept."""

    id: str
    name: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Row:
    """A job in the list; `outcome` is empty where it is not known."""

    id: str
    name: str
    changed: str
    outcome: str
    verdict: str
    is_watched: bool


def page(root: str, rows: Sequence[Row] | None, uploads: Sequence[Upload], most_mb: int) -> tuple[str, str]:
    """The first page and its policy. `root` is the folder of the jobs, `rows` None if there is none."""
    nonce = secrets.token_urlsafe(16)
    text = _template("page.html.j2").render(
        root=root, rows=rows, uploads=uploads, most_mb=most_mb, nonce=nonce, script=_part(_HERE / "page.js")
    )
    return text, _policy(nonce)


def problem_page(what: str, help_text: str) -> tuple[str, str]:
    """A page that says what went wrong, and its policy."""
    nonce = secrets.token_urlsafe(16)
    return _template("problem.html.j2").render(what=what, help=help_text, nonce=nonce), _policy(nonce)


def report_policy() -> str:
    """That of the HTML report, which also must not be in a frame: what a page says of itself cannot forbid that."""
    return f"{html.frame().globals['policy']}; {_FRAMES}"


def _policy(nonce: str) -> str:
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        f"base-uri 'none'; form-action 'none'; {_FRAMES}"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["style"] = _part(_REPORT / "page.css") + _part(_HERE / "page.css")
    return environment


def _template(name: str) -> Template:
    return _environment().get_template(name)


def _part(path: Path) -> Markup:
    """A file of ours that goes into the page as it is."""
    return Markup(path.read_text(encoding="utf-8"))  # noqa: S704 - our own
