"""Puts lines together that a container runtime wrote in pieces.

The runtimes of Kubernetes mark each line of a container's log: `P` is a piece that the next one goes on from, `F` ends
a line. Source: https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from parsers.skim import MAX_LINE

if TYPE_CHECKING:
    from parsers.multiline import Place
    from parsers.prefixes import Origin

_MARK: Final = re.compile(r"(?P<stream>(?:^| )(?:stdout|stderr) )[FP](?P<end>(?::\S{1,40})?(?: |$))")
_NEAR: Final = 64
"""Pieces of one line are no further apart; a line above that was left out when the file was skimmed is not missed."""


@dataclass(slots=True)
class _Begun:
    """A line whose end has not come: its text with the first piece's prefixes, its beginning, its last piece's line."""

    text: str
    place: Place
    last: int


@dataclass(slots=True)
class Pieces:
    """The lines of one file that are not complete yet, one a stream."""

    _begun: dict[tuple[str | None, str | None], _Begun] = field(default_factory=dict)

    def copy(self) -> Pieces:
        """The same lines, to be gone on with apart."""
        return Pieces({key: replace(begun) for key, begun in self._begun.items()})

    def concern(self, origin: Origin) -> bool:
        """Whether a line is a piece, or the end of a line in pieces."""
        part = origin.tags.get("part")
        return part == "P" or (part == "F" and bool(self._begun) and _key(origin) in self._begun)

    def add(self, origin: Origin, text: str, place: Place) -> list[tuple[str, Place]]:
        """Take a line that is a piece; gives the lines that are complete with it, marked so, in file order."""
        key = _key(origin)
        begun = self._begun.pop(key, None)
        ready = []
        if begun is not None and place.line - begun.last > _NEAR:
            ready.append(_complete(begun))
            begun = None
        if begun is None:
            begun = _Begun(text, place, place.line)
        else:
            mark = _MARK.search(text)
            begun.text = (begun.text + (text[mark.end() :] if mark else text))[:MAX_LINE]
            begun.last = place.line
        if origin.tags.get("part") == "P":
            self._begun[key] = begun
        else:
            ready.append(_complete(begun))
        return ready

    def rest(self) -> list[tuple[str, Place]]:
        """The file has ended: what was begun, as if it were complete, in file order."""
        begun = sorted(self._begun.values(), key=lambda line: line.place.offset)
        self._begun.clear()
        return [_complete(line) for line in begun]


def _key(origin: Origin) -> tuple[str | None, str | None]:
    return origin.stream, origin.tags.get("pod")


def _complete(begun: _Begun) -> tuple[str, Place]:
    return _MARK.sub(r"\g<stream>F\g<end>", begun.text, count=1), begun.place
