"""Real bytes, changed: what a torn disk, a careless writer or somebody who means harm makes of logs and dumps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random

from parsers.lineformats import load_formats

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 96 << 10
"""Bytes of a text that mutations may grow to."""

NUMBERS = (b"0", b"-1", b"00", b"65536", b"4294967296", b"18446744073709551616", b"9" * 400, b"1e999", b"NaN", b"0x7f")
TOKENS = (
    b"\0", b"\0" * 5000, b"\r", b"\r\n", b"\x1b[31m", b"\x1b]52;c;QQ==\x07", b"\xff\xfe", b"\xe2\x82", b"\xf0\x9f\x92",
    b"\xed\xa0\x80", "\u202e".encode(), "\u2028".encode(), b"[" * 400, b"{" * 400, b"(" * 400, b'"', b"'", b"\\",
    b"  " * 300,
    b"[rank3]: ", b"[rank99999999]:", b"7: ", b"2031-02-03 04:05:06.123456789", b"0000-00-00", b"Feb 30 25:61:61 ",
    b"Traceback (most recent call last):\n", b'  File "a", line 99999999999999999999, in f\n', b"=" * 60, b"x" * 30000,
    b"{}", b"null", b"%s%n", b"</script>", b"=cmd()", b"::error::", b"hf_" + b"a1B2" * 10,
    b"-----BEGIN PRIVATE KEY-----\n",
)  # fmt: skip


@cache
def sample_lines() -> tuple[bytes, ...]:
    """The lines that the formats were written after, true and false ones, and those of the sample runs."""
    samples = [
        line.encode("utf-8", "surrogatepass")
        for form in load_formats()
        for item in (*form.prefixes, *form.messages)
        for line in (*(sample.line for sample in item.samples), *getattr(item, "no_match", ()))
    ]
    runs = [line for _, files in sample_jobs() for _, data in files for line in data.splitlines()[-120:]]
    return tuple(dict.fromkeys([*samples, *runs]))


@cache
def sample_jobs() -> tuple[tuple[str, tuple[tuple[str, bytes], ...]], ...]:
    """Each sample run by its name: its files' paths and bytes."""
    jobs = sorted(path.parent / "job" for path in (ROOT / "sample_runs").glob("*/expected.json"))
    return tuple(
        (job.parent.name, tuple((str(file.relative_to(job)), file.read_bytes()) for file in files_below(job)))
        for job in jobs
    )


def files_below(folder: Path) -> list[Path]:
    """All files of a folder, in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


@cache
def dumps() -> tuple[bytes, ...]:
    """Flight-recorder dumps, as pickles and as JSON."""
    return tuple(path.read_bytes() for path in sorted((ROOT / "tests" / "data" / "flight_recorder").iterdir()))


@cache
def error_files() -> tuple[bytes, ...]:
    """torchelastic's error files."""
    found = [data for _, files in sample_jobs() for path, data in files if path.endswith("error.json")]
    made = {
        "message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback", "timestamp": "1700000000"}}
    }
    return (*found, json.dumps(made).encode())


def text(rng: Random) -> bytes:
    """Some lines of the samples, in no order that makes sense, with damage."""
    lines = sample_lines()
    if rng.random() < 0.5:
        start, count = rng.randrange(len(lines)), rng.randint(1, 12)
        chosen = list(lines[start : start + count])
    else:
        chosen = [rng.choice(lines) for _ in range(rng.randint(1, 10))]
    return damage(rng, rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(chosen) + b"\n" * rng.randint(0, 2))


def damage(rng: Random, data: bytes, most: int = 6) -> bytes:
    """Bytes with up to `most` of the mutations, none perhaps."""
    for _ in range(rng.randint(0, most)):
        data = rng.choice(_MUTATIONS)(rng, data)[:LIMIT]
    return data


def _span(rng: Random, data: bytes, longest: int = 400) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.randint(0, longest))


def _flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8) if data else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _delete(rng: Random, data: bytes) -> bytes:
    start, end = _span(rng, data)
    return data[:start] + data[end:]


def _cut(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _insert(rng: Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.choice(TOKENS) + data[start:]


def _repeat(rng: Random, data: bytes) -> bytes:
    start, end = _span(rng, data, rng.choice((3, 30, 400)))
    return data[:end] + data[start:end] * rng.choice((1, 2, 9, 200)) + data[end:]


def _number(rng: Random, data: bytes) -> bytes:
    places = [index for index, byte in enumerate(data) if 0x30 <= byte <= 0x39]
    if not places:
        return data
    start = end = rng.choice(places)
    while data[end : end + 1].isdigit():
        end += 1
    return data[:start] + rng.choice(NUMBERS) + data[end:]


def _splice(rng: Random, data: bytes) -> bytes:
    start = rng.randrange(len(data) + 1)
    return (
        data[:start] + rng.choice((b"", b"\n")) + rng.choice(sample_lines()) + rng.choice((b"", b"\n")) + data[start:]
    )


def _shuffle(rng: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    start = rng.randrange(len(lines))
    part = lines[start : start + 12]
    rng.shuffle(part)
    return b"\n".join((*lines[:start], *part, *lines[start + 12 :]))


def _interleave(rng: Random, data: bytes) -> bytes:
    """Every line under the tag of some rank, as launchers merge them."""
    form = rng.choice((b"[rank%d]: ", b"%d: ", b"[default%d]:", b"node-%d: ", b"[1,%d]<stderr>:"))
    return b"\n".join(form % rng.randrange(9) + line for line in data.split(b"\n"))


_MUTATIONS: Sequence[Callable[[Random, bytes], bytes]] = (
    _flip, _delete, _cut, _insert, _insert, _repeat, _number, _number, _splice, _splice, _shuffle, _interleave,
)  # fmt: skip
