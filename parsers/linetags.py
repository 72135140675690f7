"""Reads what stands at the front of each line besides its stamp: launcher tags, levels, loggers; on whole columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from string import ascii_letters
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from parsers.kernel import FIRST_BYTES, Bytes, Ints, byte_class, read_words
from parsers.text import narrow, polars_series, string_views

if TYPE_CHECKING:
    from parsers.stampcolumns import Stamps
    from parsers.text import Bodies


STREAMS = ("stdout", "stderr", "stddiag")


@dataclass(frozen=True, slots=True)
class Tags:
    """What launcher tags say, for the rows that have one: numbers, the stream's in `STREAMS`; -1 where they do not."""

    rows: Ints
    rank: Ints
    local_rank: Ints
    stream: Ints


_WHEN = r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9] [0-9]{4})?"
_WHEN_BYTES = 24
# mpirun and horovodrun, PRRTE, the rank of torch, the role and local rank of torchrun --tee, srun -l
_TAG = re.compile(
    rf"{_WHEN}\[(?:[\w@.-]+,)?(?P<mpi>[0-9]{{1,7}})\]<(?P<stream>stdout|stderr|stddiag)>:"
    r'|<(?P<xml>stdout|stderr) rank="(?P<prrte>[0-9]{1,7})">'
    r"|\[rank(?P<rank>[0-9]{1,7})\]:"
    r"|\[[A-Za-z_](?:[\w.-]{0,40}?[A-Za-z_.-])?(?P<local>[0-9]{1,5})\]:(?: ?\[rank(?P<nested>[0-9]{1,7})\]:)?"
    r"|(?:P[0-9]{1,4} )? {0,4}(?P<label>[0-9]{1,5}):[ \r\n]"
)
_TAG_BYTES = 80
_NUMBER = re.compile(rb"[\[(]([0-9]{1,5})(?:/[0-9]{1,5})?[\])]:? ")
_NUMBER_BYTES = len("[12345/12345]: ")
_RANK_BYTES = len(" [rank1234567]:")
_LETTER, _DIGIT = byte_class(ascii_letters.encode() + b"_"), byte_class(b"0123456789")
_BLANK_OR_DIGIT, _LABEL = byte_class(b" 0123456789"), byte_class(b" P0123456789")
_COLON, _OPEN, _LESS, _GREATER, _SPACE, _DASH = (np.uint8(ord(c)) for c in ":[<> -")
_KEYED = 24
"""Tags of so many bytes at most are compared on columns."""


class Label(IntEnum):
    """What stands in front of all lines of a file that a launcher labelled."""

    NONE = 0
    TASK = 1
    """`srun -l`: `3: `. Elsewhere a number and a colon are text."""
    NUMBER = 2
    """Hydra's `mpiexec -l`: `[3] `. Elsewhere it may be an epoch, a request, a thread."""


def read_tags(data: Bytes, starts: Ints, labels: Ints) -> Tags:
    """Ranks and streams from the tags at the front of the lines, looked for where a line begins like one.

    `labels` tells how each line's file was labelled.
    """
    labelled = labels == Label.TASK
    first, second = data[starts], data[starts + 1]
    named = _LETTER[second] | (_DIGIT[second] & (data[starts + 5] != _DASH))  # [2026-... is a stamp
    likely = ((first == _OPEN) & named) | ((first == _LESS) & (second == ord("s"))) | (labelled & _LABEL[first])
    dated = (data[starts + _WHEN_BYTES] == _OPEN) & (data[starts + 3] == _SPACE) & (data[starts + 7] == _SPACE)
    dated &= ~likely
    rows = np.flatnonzero(likely | dated)
    begin = starts[rows]
    front = np.where(dated[rows], _WHEN_BYTES, 0)
    length = _tag_lengths(data, begin + front)
    ended = length > 0
    rows, begin, length = rows[ended], begin[ended], (front + length)[ended]
    heads, run = _tag_runs(data, begin, length)
    read: dict[bytes, tuple[int, int, int]] = {}
    told = []
    for start, stop in zip(begin[heads].tolist(), (begin + length)[heads].tolist(), strict=True):
        tag = data[start:stop].tobytes()
        if tag not in read:
            read[tag] = _read_tag(tag)
        told.append(read[tag])
    rank, local_rank, stream = np.array(told, np.int64).reshape(-1, 3)[run].T
    numbered = np.flatnonzero(labels == Label.NUMBER)
    fronts = windows(data, starts[numbered], _NUMBER_BYTES)
    numbers = np.array([_number(front.tobytes()) for front in fronts], np.int64)
    none = np.full(len(numbered), -1, np.int64)
    return Tags(
        np.append(rows, numbered), np.append(rank, numbers), np.append(local_rank, none), np.append(stream, none)
    )


@lru_cache(maxsize=1 << 12)
def _number(front: bytes) -> int:
    found = _NUMBER.match(front)
    return int(found[1]) if found is not None else -1


def _tag_lengths(data: Bytes, at: Ints) -> Ints:
    """Bytes of the tag that may begin at each place; 0 where none ends within reach."""
    window = windows(data, at, _TAG_BYTES)
    close = window == np.where(window[:, 0] == _LESS, _GREATER, _COLON)[:, None]
    length = np.where(close.any(axis=1), close.argmax(axis=1) + 1, 0)
    # The blank behind srun's label; the rank that a process printed behind torchrun's tag.
    length += (length > 0) & (window[:, 0] != _OPEN) & (window[:, 0] != _LESS)
    follows = at + length
    follows += data[follows] == _SPACE
    nested = np.flatnonzero((length > 0) & (data[follows] == _OPEN) & (data[follows + 1] == ord("r")))
    inner = windows(data, follows[nested], _RANK_BYTES) == _COLON
    reach = np.where(inner.any(axis=1), inner.argmax(axis=1) + 1, 0)
    length[nested] = np.where(reach > 0, follows[nested] + reach - at[nested], length[nested])
    return length


def _tag_runs(data: Bytes, begin: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Lines below each other mostly have the same tag: first of each run of equal ones, and the run of each."""
    fresh = length > _KEYED
    fresh[:1] = True
    fresh[1:] |= length[1:] != length[:-1]
    for shift in range(0, _KEYED, 8):
        key = read_words(data, begin + shift) & FIRST_BYTES[np.clip(length - shift, 0, 8)]
        fresh[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(fresh), np.cumsum(fresh) - 1


def _read_tag(tag: bytes) -> tuple[int, int, int]:
    """Rank, local rank and stream of a tag, -1 for what it does not tell."""
    found = _TAG.match(tag.decode(errors="replace"))
    if found is None:
        return -1, -1, -1
    rank = found["mpi"] or found["prrte"] or found["rank"] or found["nested"] or found["label"]
    stream = found["stream"] or found["xml"]
    return int(rank or -1), int(found["local"] or -1), STREAMS.index(stream) if stream else -1


def windows(data: Bytes, at: Ints, width: int) -> npt.NDArray[np.uint8]:
    """`width` bytes from each place on, of which there are as many: a chunk's slack is wider than any window."""
    return np.lib.stride_tricks.sliding_window_view(data, width)[at]


_HEAD_CHARACTERS = 160
"""A level or a logger is named within so many characters, or it is part of the message."""
_LEVEL = (
    r"((?-u:\b)(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)(?-u:\b)"
    r'|"(?:level|lvl|severity|levelname)": ?"[A-Za-z]+|: (?:error|warning|fatal): )'
)
_SEVERITY = {
    "trace": 1, "debug": 5, "info": 9, "notice": 10, "warn": 13, "warning": 13, "error": 17, "critical": 21,
    "fatal": 21,
}  # fmt: skip
_LETTERS = np.zeros(256, np.int8)
_LETTERS[list(b"VIWEFC")] = (5, 9, 13, 17, 21, 21)
_LEVEL_KEYS, _LEVEL_NUMBERS = np.array(
    sorted(
        (int.from_bytes(text[:4].encode(), "little"), number)
        for name, number in _SEVERITY.items()
        for text in (name.upper(), f": {name}: ")
    ),
    np.int64,
).T
"""The first four bytes of what the pattern finds tell the level, but for JSON."""
_WORDS = re.compile(rb"[A-Za-z]+")
_JSON_BYTES = len('"levelname": "critical"')
_IN_NAME = _LETTER | _DIGIT | byte_class(b"./+-")
_NAME_BYTES = 40


@lru_cache(maxsize=1 << 12)
def _json_level(member: bytes) -> int:
    """The number of the level that a member of a JSON record names at the front of some bytes."""
    return _SEVERITY.get(_WORDS.findall(member)[1].decode().lower(), 0)


def read_severities(bodies: Bodies, stamps: Stamps) -> npt.NDArray[np.int8]:
    """OpenTelemetry's number of each line's level; 0 where the line names none."""
    head = bodies.text.str.slice(0, _HEAD_CHARACTERS)
    found = head.str.find(_LEVEL)
    severity = np.zeros(len(found), np.int8)
    rows = np.flatnonzero(found.is_not_null().to_numpy())
    _, borders, text = bodies.column.buffers()
    if len(rows) and borders is not None and text is not None:
        at = np.frombuffer(memoryview(borders), np.int32)[rows] + found.drop_nulls().to_numpy().astype(np.int64)
        letters = np.frombuffer(memoryview(text), np.uint8)
        key = np.ndarray((len(letters) - 3,), "<u4", letters.data, strides=(1,))[at].astype(np.int64)
        place = np.minimum(np.searchsorted(_LEVEL_KEYS, key), len(_LEVEL_KEYS) - 1)
        severity[rows] = np.where(_LEVEL_KEYS[place] == key, _LEVEL_NUMBERS[place], 0)
        quoted = letters[at] == ord('"')
        view = memoryview(text)
        severity[rows[quoted]] = [
            _json_level(bytes(view[start : start + _JSON_BYTES])) for start in at[quoted].tolist()
        ]
    lettered = stamps.letter > 0
    severity[stamps.row[lettered]] = _LETTERS[stamps.letter[lettered]]
    return severity


def read_loggers(data: Bytes, stamps: Stamps, rows: int) -> pa.DictionaryArray[Any, Any]:
    """The logger of `logging`'s usual format, the source file of glog and c10: what a line names behind its stamp."""
    end = stamps.end
    dashed = (data[end] == _SPACE) & (data[end + 1] == _DASH) & (data[end + 2] == _SPACE)
    named = np.flatnonzero(dashed | (stamps.letter > 0))
    start, dashed = end[named] + np.where(dashed[named], 3, 0), dashed[named]
    # A thread number stands between glog's stamp and its file.
    coded = np.flatnonzero(~dashed)
    start[coded] += (~_BLANK_OR_DIGIT[windows(data, start[coded], _NAME_BYTES)]).argmax(axis=1)
    window = windows(data, start, _NAME_BYTES)
    length = (~_IN_NAME[window]).argmax(axis=1)
    stop = np.minimum(start + length, len(data) - 3)
    spaced = (data[stop] == _SPACE) & (data[stop + 1] == _DASH) & (data[stop + 2] == _SPACE)
    good = (length > 0) & np.where(dashed, spaced, data[stop] == _COLON)
    texts = polars_series(string_views(data, start[good], stop[good]))
    words = texts.unique()
    codes = np.full(rows, -1, np.int32)
    codes[stamps.row[named[good]]] = texts.cast(pl.Enum(words)).to_physical().to_numpy()
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes < 0), narrow(words))
