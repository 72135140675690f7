"""Writes docs/catalogue/: a page an entry, and the list of them. Run it when an entry has changed; a test compares."""

from __future__ import annotations

from pathlib import Path

from aggregator.catalogue.entries import default_catalogue
from aggregator.catalogue.page import page

FOLDER = Path(__file__).parent / "catalogue"
_HEAD = """\
# The catalogue

Failures that are known by name. A verdict names the entry that fits best, with what speaks for and against it;
`denpex-agg explain ENTRY` prints these pages. [Writing an entry](../entries.md) says how one is added.

| entry | kinds | title |
|---|---|---|
"""


def pages() -> dict[str, str]:
    """File name → text."""
    entries = default_catalogue().all()
    rows = [f"| [{entry.id}]({entry.id}.md) | {', '.join(entry.kinds)} | {entry.title} |\n" for entry in entries]
    return {"README.md": _HEAD + "".join(rows), **{f"{entry.id}.md": page(entry) for entry in entries}}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
