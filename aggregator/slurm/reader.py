"""The process that reads a job's logs: it has the rights of the job's user, limits, and nothing that it could betray.

It talks to the epilog by lines over a socket: `kernel` asks for the nodes' kernel lines (a JSON object, by node), and
one JSON object is its result.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from aggregator import limits, safe
from aggregator.case import Case
from aggregator.catalogue.entries import default_catalogue
from aggregator.correlate.judge import judge_job
from aggregator.discover import Discovery, discover
from aggregator.errors import DenpexError, InputError, OutputError
from aggregator.opening import Budget
from aggregator.pipeline import collect
from aggregator.reports import Reporter, ReportOptions
from aggregator.reports.html import HtmlReporter, frame
from aggregator.reports.text import TextReporter
from aggregator.slurm.folder import Folder
from aggregator.slurm.logs import log_paths
from aggregator.slurm.outputs import ended_well, label, report_name
from aggregator.slurm.privileges import PrivilegeError, become, limit_itself
from aggregator.verdict import Json, Outcome, to_json
from parsers.lexicon import default_lexicon
from parsers.records import Source, SourceKind
from parsers.scan import Twins
from parsers.timestamps import StampContext
from parsers.triage import LogTriage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aggregator.correlate.evidence import JobEvidence
    from aggregator.slurm.config import Config
    from aggregator.slurm.job import SlurmJob

RESULT_LIMIT = 4 << 20
"""Bytes of a result."""
ASK = b"kernel"
NodeLogs = dict[str, list[str]]
"""By node, the lines of its kernel that concern the job."""

_ESSENTIAL = ("outcome", "first_failure", "coverage")

_LATER = (
    "email.utils", "encodings.utf_16_be", "encodings.utf_16_le", "encodings.utf_8_sig", "hashlib", "statistics",
    "tempfile", "aggregator.correlate.collectives", "aggregator.correlate.lanes", "aggregator.keyblocks",
    "parsers.flight_recorder", "parsers.safe_pickle",
)  # fmt: skip
"""What reading and judging import when they need it, and may then not be able to."""


@dataclass(frozen=True, slots=True)
class Task:
    """What to read, in how much time. `lost` is the job's first node, if that has given no sign of life."""

    job: SlurmJob
    config: Config
    time_s: float
    lost: str = ""


def start(task: Task) -> tuple[int, socket.socket]:
    """Begin to read; gives the process's id, which is also that of its group, and the epilog's end of the socket."""
    # While we are allowed to read our own files.
    default_lexicon()
    default_catalogue().read_files()
    frame()
    safe.secret_patterns()
    for name in _LATER:
        import_module(name)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        _serve(theirs, task)
    theirs.close()
    return pid, ours


def _serve(theirs: socket.socket, task: Task) -> NoReturn:
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        channel = _keep_only(theirs)
        result = _result(task, lambda: _asked(channel))
        data = json.dumps(result).encode()
        if len(data) > RESULT_LIMIT:
            document = result["verdict"]
            assert isinstance(document, dict)
            data = json.dumps({"verdict": {key: document[key] for key in _ESSENTIAL}}).encode()
        channel.sendall(data + b"\n")
    finally:
        os._exit(0)  # whatever happens: the program that it was forked from must not go on here


def _keep_only(theirs: socket.socket) -> socket.socket:
    """Closes all descriptors but the socket's: of what the epilog has open, nothing is for the user."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    kept = theirs.detach()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is needed
        if int(name) not in {0, 1, 2, kept}:
            with suppress(OSError):  # that of the listing itself
                os.close(int(name))
    return socket.socket(fileno=kept)


def _asked(channel: socket.socket) -> NodeLogs:
    channel.sendall(ASK + b"\n")
    with channel.makefile("rb") as answer:
        logs: NodeLogs = json.loads(answer.readline())
    return logs


def _result(task: Task, ask: Callable[[], NodeLogs]) -> dict[str, Json]:
    """The verdict and the report, or the problem."""
    try:
        is_root = os.geteuid() == 0
        limit_itself(task.config.memory_mb, task.time_s)
        if is_root:
            become(task.job)
        limits.bind_to(limits.OwnerRule(os.geteuid(), sole_name=is_root))
        return _report(task, ask)
    except PrivilegeError as error:
        return {"problem": f"refused: {error}"}
    except DenpexError as error:
        return {"problem": f"{error.what}: {error.help}" if error.help else error.what}
    except PermissionError as error:
        return {"problem": f"{error.filename} cannot be read: the program must be where every user can read it"}
    except MemoryError:
        return {"problem": f"out of memory; the limit is memory_mb = {task.config.memory_mb}"}
    except Exception as error:  # noqa: BLE001 - the process's border
        return {"problem": f"this is a bug: {type(error).__name__}: {error}"}


def _report(task: Task, ask: Callable[[], NodeLogs]) -> dict[str, Json]:
    job = task.job
    paths = log_paths(job, task.config.log_roots)
    case = _case(task, paths, ask)
    verdict, text = case.verdict, _rendered(TextReporter, case)
    result: dict[str, Json] = {"verdict": to_json(verdict), "text": text}
    if task.config.in_job_folder and not ended_well(job, verdict, task.lost):
        place = _output_folder(job, paths)
        try:
            with Folder(place, trusted=False) as folder:
                texts = {".txt": text, ".json": json.dumps(result["verdict"], indent=2) + "\n"}
                texts[".html"] = _rendered(HtmlReporter, case)
                for suffix, content in texts.items():
                    folder.keep(report_name(job), suffix)
                    folder.write(report_name(job, suffix), content, 0o600)
            result["report"] = str(Path(place) / report_name(job, ".txt"))
        except OutputError as error:
            result["note"] = error.what
    return result


def _rendered(form: type[Reporter], case: Case) -> str:
    out = io.StringIO()
    form(ReportOptions()).render(case, out)
    return out.getvalue()


def _output_folder(job: SlurmJob, paths: Sequence[str]) -> str:
    """The folder of the job's output: of its first file, else its first folder, else where it was submitted."""
    files = [str(Path(path).parent) for path in paths if Path(path).is_file()]
    return [*files, *paths, job.work_dir][0]


def _case(task: Task, paths: Sequence[str], ask: Callable[[], NodeLogs]) -> Case:
    """The verdict on the logs; only if that is not a good one, with what the nodes' kernels tell."""
    job, config = task.job, task.config
    missing: InputError | None = None
    found = Discovery(None, f"job {label(job)}", (), ())
    try:
        if paths:
            found = discover(paths, max_files=config.max_files)
    except InputError as error:
        missing = error
    share = limits.fair_share([source.size for source in found.sources], config.read_mb << 20)
    evidence = collect(found, budget=Budget(plain=share, total=share))
    judged = judge_job(_copy(evidence))
    if not found.sources or not ended_well(job, judged.verdict, task.lost):
        logs = ask()
        if not found.sources and not logs:
            raise missing or InputError("no log to read: none is where Slurm says, or has the job's number in its name")
        if logs:
            judged = judge_job(_with_node_logs(evidence, logs))
    warnings = (f"the job's first node, {task.lost}, has run no epilog: it may be lost",) if task.lost else ()
    verdict = judged.verdict
    verdict = replace(
        verdict,
        job=replace(verdict.job, id=verdict.job.id or label(job)),
        # Where the logs end in the middle of the work: it is over now.
        outcome=Outcome.UNKNOWN if verdict.outcome is Outcome.RUNNING else verdict.outcome,
        warnings=(*warnings, *verdict.warnings),
    )
    return Case(verdict, judged)


def _copy(evidence: JobEvidence) -> JobEvidence:
    """Evidence for one judgement, which writes into the signals."""
    twins = Twins()
    scans = tuple(scan.copy(twins) for scan in evidence.scans)
    return replace(evidence, scans=scans, extra_signals=tuple(twins.all(evidence.extra_signals)))


def _with_node_logs(evidence: JobEvidence, logs: Mapping[str, Sequence[str]]) -> JobEvidence:
    """Evidence with the kernel logs of nodes, as if each were one more file."""
    sources, scans = list(evidence.sources), list(evidence.scans)
    for node, lines in logs.items():
        data = "".join(f"{line}\n" for line in lines).encode()
        name = f"kernel log of {node}"
        sources.append(Source(len(sources), name, None, SourceKind.KERNEL, host=node, size=len(data)))
        triage = LogTriage(sources[-1], default_lexicon(), StampContext(), files=len(evidence.scans) + len(logs))
        triage.feed(data)
        scans.append(triage.finish())
    return replace(evidence, sources=tuple(sources), scans=tuple(scans))
