"""The report as one HTML file that opens from disk, asks nothing of a network and runs nothing but its own two scripts.

`page.html.j2` escapes all that is put into it; the chart gets its data as JSON that cannot close its element. The
policy in the page's head names the scripts and the style by their hashes, so that nothing else runs even if it got in.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from aggregator.reports.html.chart import chart_data
from aggregator.reports.html.page import page_of

if TYPE_CHECKING:
    from aggregator.case import Case
    from aggregator.reports import ReportOptions

_HERE = Path(__file__).parent
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}
"""Of what could end an element, or begin a comment, inside a script element."""


class HtmlReporter:
    """One file with everything in it."""

    name = "html"
    suffix = ".html"

    def __init__(self, options: ReportOptions) -> None:
        self._options = options

    def render(self, case: Case, out: TextIO) -> None:
        """Write the page, in ASCII: characters beyond it are character references, whatever `out` can carry."""
        page = page_of(case, redact=self._options.redact)
        chart = chart_data(case, page.clean)
        data = Markup(json.dumps(chart, separators=(",", ":"), allow_nan=False).translate(_ESCAPES))  # noqa: S704 - escaped for its place
        text = frame().render(page=page, data=data, is_drawn=chart["span"] > 0)
        out.write(text.encode("ascii", "xmlcharrefreplace").decode() + "\n")


@cache
def frame() -> Template:
    """The page without a case. Reads this package's files; a process that will lose the right to do so asks before."""
    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, library, script = (_part(name) for name in ("page.css", "echarts.min.js", "page.js"))
    policy = (
        f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src {_hash(style)}; "
        f"script-src {_hash(library)} {_hash(script)}"
    )
    parts = {"style": style, "library": library, "script": script, "policy": policy}
    return environment.get_template("page.html.j2", globals=parts)


def _part(name: str) -> Markup:
    """A file of ours that goes into the page as it is: in ASCII, so that its hash holds however the page is encoded."""
    return Markup((_HERE / name).read_text(encoding="ascii"))  # noqa: S704 - our own


def _hash(part: Markup) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
