"""What takes the inputs. A target makes its input from a generator of random numbers and hands it over.

It returns if all went well, refusals that are foreseen among them; anything that it raises is a finding.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from random import Random

import jsonschema
import pyarrow as pa

from aggregator import safe
from aggregator.catalogue.source import CHECKS, Sources, look
from aggregator.discover import discover
from aggregator.errors import DenpexError
from aggregator.eventlines import LINE_FORMATS
from aggregator.export import events_of
from aggregator.masking import masked
from aggregator.opening import ReadNotes, read_chunks
from aggregator.pipeline import investigate
from aggregator.reports import reporter, reporter_names
from aggregator.slurm.filenames import file_name
from aggregator.slurm.hostlist import expand
from aggregator.slurm.job import job_of
from aggregator.slurm.kernel import kernel_lines
from fuzzing.mutation import ROOT, damage, dumps, error_files, sample_jobs, sample_lines, text
from parsers.flight_recorder import load_dump
from parsers.json_records import parse_record
from parsers.lexicon import default_lexicon
from parsers.prefixes import PrefixStripper
from parsers.records import Frame, Source, SourceKind
from parsers.safe_pickle import DamagedDump
from parsers.timestamps import StampContext
from parsers.torch_elastic import parse_traceback, read_error_json
from parsers.triage import LogTriage
from parsers.urgent import urgent_lines

Target = Callable[[Random, Path], None]
"""Takes an empty folder beside the generator; whoever calls it empties the folder again."""

NAMES = (
    "rank_3.log", "rank3.out", "3/stderr.log", "attempt_0/3/stdout.log", "error.json", "attempt_1/0/error.json",
    "nccl_trace_rank_3", "trace_rank_3.json", "slurm-4242.out", "4242_7.err", "node-a/log.txt", "dmesg-node-2.txt",
    "train.log.1", "train.log.2.gz", "config.yaml", "submit.sbatch", "README.md", "worker-0-0.log", "job.out",
    "py-spy.txt",
    "a b.log", "ümlaut.log", "\udcff.log", "[x].log", "-n.log", "x\n.log", "\x1b[31m.log", ".hidden.log",
    "x" * 200 + ".log",
    "rank_99999999999999999999.log", "logs/run_abcd1234/attempt_0/1/stderr.log", "gpu-[0-9].log", "stdout", "core.1234",
)  # fmt: skip
MANY = 2_000
"""Rows of which the check alone would take longer than is allowed: a line can claim 131,072 ranks."""
TIME_NS = 1_930_000_000 * 10**9


@cache
def _schema() -> jsonschema.Draft202012Validator:
    told = json.loads((ROOT / "aggregator" / "verdict.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(told)


def lines(rng: Random, _folder: Path) -> None:
    """Prefixes, messages, records, tracebacks of decoded lines; what is shown of them is masked and harmless."""
    lexicon = default_lexicon()
    stripper = PrefixStripper(lexicon.prefixes, StampContext(rng.choice((None, TIME_NS))))
    told = text(rng)[:4096].decode("utf-8", "replace").split("\n")[:6]
    for line in told:
        origin = stripper.strip(line)
        lexicon.match(origin.body)
        parse_record(line)
        shown = safe.show(safe.mask(line), 400)
        assert not any(char < " " and char != "\t" for char in shown)
    parse_traceback(told)


def triage(rng: Random, _folder: Path) -> None:
    """One log in pieces of any size, and what is told of it before its end."""
    data = text(rng)
    source = Source(0, "a.log", None, SourceKind.LOG, rank=rng.choice((None, 3)))
    reader = LogTriage(source, default_lexicon(), StampContext(TIME_NS), files=rng.choice((1, 9, 5000)))
    while data:
        size = rng.choice((1, 7, 100, 5000, 1 << 20))
        reader.feed(data[:size])
        data = data[size:]
        if rng.random() < 0.05:
            reader.so_far()
    reader.finish()


def urgent(rng: Random, _folder: Path) -> None:
    """Which lines may change a verdict, as `watch` asks."""
    urgent_lines(text(rng))


def dump(rng: Random, _folder: Path) -> None:
    """A flight-recorder dump, a pickle or JSON."""
    data = rng.choice(dumps())
    if rng.random() < 0.3:
        start = rng.randrange(len(data))
        data = data[:200] + data[start : start + 400]
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(PICKLED) + data[at + rng.choice((0, 1, 4)) :]
    with contextlib.suppress(DamagedDump):
        load_dump(damage(rng, data, 3), rng.choice((None, 3)))


PICKLED = (
    b"cos\nsystem\n", b"(S'id'\ntR.", b"\x8c\x02os\x8c\x06system\x93", b"\x94", b"r\xff\xff\xff\xff", b"j\0\0\0\0",
    b"h\0", b"q\0",
    b"]" * 90, b"(", b"\x85\x86\x87", b"\x8e" + b"\xff" * 8, b"\x95" + b"\x7f" * 8, b"\x8a\xff" + b"\xff" * 255,
    b"P1\n", b"Q",
    b"\x82\x01", b"e", b"u", b"s", b"a", b"0", b"2", b".", b"N", b"\x88", b"G" + b"\xff" * 8, b"]q\x00h\x00a",
    b"\x80\xff",
)  # fmt: skip


def error_json(rng: Random, _folder: Path) -> None:
    """torchelastic's error file."""
    read_error_json(damage(rng, rng.choice(error_files())))


def archive(rng: Random, folder: Path) -> None:
    """A compressed log, damaged after it was compressed."""
    small = (partial(bz2.compress, compresslevel=1), partial(lzma.compress, preset=0))
    pack = rng.choice((gzip.compress, zlib.compress, _zstd, *small))
    data = b"".join(pack(text(rng)) for _ in range(rng.randint(1, 2)))
    path = folder / "a.log"
    path.write_bytes(damage(rng, data, 2))
    for _ in read_chunks(Source(0, "a.log", path, SourceKind.LOG), ReadNotes()):
        pass


def _zstd(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


def discovery(rng: Random, folder: Path) -> None:
    """Folders of names that mean something, and of names that mean nothing."""
    for _ in range(rng.randint(1, 8)):
        _plant(rng, folder, rng.choice(NAMES), rng.choice((b"", text(rng)[:300], rng.choice(dumps())[:300])))
    with contextlib.suppress(DenpexError):
        discover([str(folder)])


def _plant(rng: Random, folder: Path, name: str, data: bytes) -> None:
    changed = damage(rng, name.encode("utf-8", "surrogateescape"), 1)[:700].replace(b"\0", b"")
    parts = [os.fsdecode(part[:250]) for part in changed.split(b"/") if part not in {b"", b".", b".."}]
    path = folder.joinpath(*parts[-6:] or ["x"])
    with contextlib.suppress(FileExistsError, NotADirectoryError):  # another has a file where this one has a folder
        path.parent.mkdir(parents=True, exist_ok=True)
        what = rng.random()
        if what < 0.02:
            os.mkfifo(path)
        elif what < 0.06:
            path.symlink_to(rng.choice(("/etc/passwd", "..", ".", "/dev/zero", "x")))
        elif not os.path.lexists(path):
            path.write_bytes(data)


def source_file(rng: Random, folder: Path) -> None:
    """The program's source, which a catalogue entry looks at."""
    path = folder / "train.py"
    path.write_bytes(damage(rng, rng.choice(_programs())))
    frames = [Frame(str(path), rng.randint(-1, 40), name) for name in ("evaluate", "main")]
    for check in CHECKS:
        look(check, frames, Sources())


@cache
def _programs() -> tuple[bytes, ...]:
    own = [path.read_bytes()[:3000] for path in sorted((ROOT / "bench" / "simulation").glob("*.py"))]
    made = b"def evaluate(m, loader):\n    losses = []\n    with torch.no_grad():\n        for b in loader:\n"
    made += b"            losses.append(m(b))\n"
    return (*own, *[made + b"def main():\n    if rank == 0:\n        evaluate(m, l)\n"] * 3)


def slurm(rng: Random, folder: Path) -> None:
    """What Slurm and the kernel tell of a job."""
    words = [damage(rng, word, 2).decode("utf-8", "surrogateescape") for word in (
        b"node[01-03,07],gpu-a03,rack[1-2]n[08-09]", b"out/%x-%j_%A_%a.%N.%t.%5n", b"4242", b"2031-02-03", b"0:9",
    b"alice",
    )]  # fmt: skip
    expand(words[0])
    names = (
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_STDOUT",
        "SLURM_JOB_ID",
        "SLURM_JOB_START_TIME",
        "SLURM_JOB_EXIT_CODE2",
        "SLURM_JOB_USER",
    )
    try:
        job = job_of(dict(zip(names, words, strict=True)))
    except DenpexError:
        job = job_of({"SLURM_JOB_ID": "4242"})
    file_name(words[1], job)
    log = folder / "kmsg"
    log.write_bytes(
        damage(
            rng,
            b"6,1,%d,-;Out of memory: Killed process 77 (python) /slurm/uid_1000/job_4242/step_0\n"
            % rng.randrange(10**8)
            * 3,
        )
    )
    kernel_lines(replace(job, start_s=rng.choice((None, 1_930_000_000))), 1_930_000_100.0, str(log), lambda: 100.0)


def rows(rng: Random, folder: Path) -> None:
    """Every line as a row, masked, and as the lines that `export` writes."""
    (folder / "rank_3.log").write_bytes(text(rng))
    try:
        found = discover([str(folder)]).logs
    except DenpexError:  # it looks like a binary file
        return
    batches = list(masked(events_of(found, partial(read_chunks, notes=ReadNotes()), TIME_NS)))
    for form in LINE_FORMATS.values():
        for line in form(batches, {}):
            json.loads(line)


def postmortem(rng: Random, folder: Path) -> None:
    """A whole sample run, mutated; a report on it is written, of which JSON is held against the schema."""
    _, files = rng.choice(sample_jobs())
    for path, data in files:
        if rng.random() < 0.05:
            continue
        worse = damage(rng, data, 3) if rng.random() < 0.5 else data
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(worse, 1) if rng.random() < 0.05 else worse)
    if rng.random() < 0.3:
        _plant(rng, folder, rng.choice(NAMES), text(rng))
    try:
        case = investigate([str(folder)], workers=1)
    except DenpexError:
        return
    name = rng.choice(("json", *reporter_names()))
    out = StringIO()
    reporter(name).render(case, out)
    if name != "json":
        return
    told = json.loads(out.getvalue())
    if len(told["collateral"]) + len(told["job"]["ranks_missing"]) < MANY:
        _schema().validate(told)


def short_job(rng: Random, folder: Path) -> None:
    """A few short files of any lines, judged, so that many of them can be."""
    for name in rng.sample(NAMES, rng.randint(1, 4)):
        _plant(rng, folder, name, damage(rng, b"\n".join(rng.choices(sample_lines(), k=rng.randint(1, 12))), 3))
    try:
        case = investigate([str(folder)], workers=1)
    except DenpexError:
        return
    out = StringIO()
    reporter("json").render(case, out)
    json.loads(out.getvalue())


TARGETS: dict[str, tuple[Target, int]] = {
    "postmortem": (postmortem, 6), "short_job": (short_job, 15), "rows": (rows, 4), "source_file": (source_file, 15),
    "discovery": (discovery, 40), "archive": (archive, 30), "slurm": (slurm, 30), "triage": (triage, 90),
    "urgent": (urgent, 70), "dump": (dump, 250), "error_json": (error_json, 120), "lines": (lines, 330),
}  # fmt: skip
"""Each with its share of a thousand inputs: cheap ones are given more."""


def empty(folder: Path) -> None:
    """Removes all that is in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
