"""Reports: one module an output, one line in the registry.

A reporter turns a `Case` into text. It masks secrets unless told not to, and never prints foreign text but through
`aggregator.safe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from aggregator.case import Case


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How to render. `color` is for text on a terminal only; `width` is in characters."""

    redact: bool = True
    color: bool = False
    width: int = 80


class Reporter(Protocol):
    """One form of output. `suffix` is the file name's ending that goes with it, with its dot."""

    name: str
    suffix: str

    def __init__(self, options: ReportOptions) -> None: ...

    def render(self, case: Case, out: TextIO) -> None:
        """Write the whole report, ending with a newline."""
        ...


_REGISTRY = {
    "text": ("aggregator.reports.text", "TextReporter"),
    "json": ("aggregator.reports.json", "JsonReporter"),
    "html": ("aggregator.reports.html", "HtmlReporter"),
    "markdown": ("aggregator.reports.markdown", "MarkdownReporter"),
    "github": ("aggregator.reports.github", "GithubReporter"),
    "sarif": ("aggregator.reports.sarif", "SarifReporter"),
    "trace": ("aggregator.reports.trace", "TraceReporter"),
    "prometheus": ("aggregator.reports.prometheus", "PrometheusReporter"),
    "problems": ("aggregator.reports.problems", "ProblemsReporter"),
}


def reporter_names() -> tuple[str, ...]:
    """The names that `--format` takes, the default first."""
    return tuple(_REGISTRY)


def format_of(file_name: str) -> str | None:
    """The form whose suffix a file's name has, the longest one that fits; None if there is none."""
    fitting = {name: suffix for name in _REGISTRY if file_name.endswith(suffix := _class_of(name).suffix)}
    return max(fitting, key=lambda name: len(fitting[name]), default=None)


def reporter(name: str, options: ReportOptions | None = None) -> Reporter:
    """The reporter of that name; its module is imported only now.

    Raises:
        KeyError: there is none.
    """
    return _class_of(name)(options or ReportOptions())


def _class_of(name: str) -> type[Reporter]:
    module, cls = _REGISTRY[name]
    found: type[Reporter] = getattr(import_module(module), cls)
    return found
