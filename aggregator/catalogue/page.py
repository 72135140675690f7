"""One entry as a page of Markdown: what `explain` prints, and what docs/catalogue/ holds."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from aggregator.catalogue.entries import Condition, Entry

_LAYERS = {
    "gpu": "Hardware: the GPU, its memory or its link.",
    "host": "The machine: its memory, its kernel, its limits.",
    "network": "The network between the machines, or one end of it.",
    "storage": "Storage: a file system, its server, its space.",
    "software": "Software: the training program, its libraries or their settings.",
    "scheduler": "The scheduler ended the job; no rank failed.",
    "user": "A person, or how the job was started.",
    "unknown": "Cannot be said from the logs alone.",
}
_NODES = {
    "keep": "Keep the node: nothing speaks against it.",
    "reset": "Reset the GPU (or reboot the node) before the next job.",
    "drain": "Drain the node, and test it before it takes jobs again.",
    "replace": "Drain the node; the part is to be replaced if it happens again.",
}


def page(entry: Entry) -> str:
    """The whole entry, in Markdown."""
    return "\n".join(_lines(entry)).rstrip() + "\n"


def _lines(entry: Entry) -> Iterator[str]:
    yield from (f"# {entry.title}", "", f"`{entry.id}` · {', '.join(entry.kinds)}", "")
    yield from (f"**Symptom.** {entry.symptom}", "", f"**Cause.** {entry.cause}", "", f"**Fix.** {entry.fix}", "")
    yield from (f"**Verify.** {entry.verify}", "", "## Why it happens", "", entry.mechanism, "")
    if entry.observed:
        yield from (
            "| what one sees | why |",
            "|---|---|",
            *(f"| {seen} | {why} |" for seen, why in entry.observed),
            "",
        )
    if entry.scale:
        yield from (entry.scale, "")
    yield from ("## Hardware or software", "", f"{_LAYERS[entry.layer]} {_NODES[entry.node]}", "")
    if entry.code:
        yield from ("## The fix as code", "")
        for stack, text in entry.code.items():
            yield from (f"{stack}:", "", *(indent(text, "    ").split("\n")), "")
    yield from ("## How it is told", "", *_told("It must be so", entry.needs), *_told("It must not be so", entry.never))
    yield from (*_told("For it", entry.signs), *_told("Against it", entry.doubts))
    if entry.confirm:
        yield from (
            "## How to confirm it",
            "",
            *(f"{number}. {step}" for number, step in enumerate(entry.confirm, 1)),
            "",
        )
    yield from ("## Prevention", "", entry.prevention, "", f"To alert on: {entry.fingerprint}", "")
    if entry.related:
        yield from ("## Check next", "")
        yield from (f"- `{item.entry}` ({item.severity}): {item.why}" for item in entry.related)
        yield ""
    if entry.references:
        yield from ("## References", "", *(f"- {link}" for link in entry.references))


def _told(title: str, conditions: tuple[Condition, ...]) -> Iterator[str]:
    if conditions:
        yield from (f"{title}:", "", *(f"- {item.says.replace('{}', '…')}" for item in conditions), "")
