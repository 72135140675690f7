"""The whole run of the epilog. Whatever happens, it ends in time, and nothing that it meets can make it fail.

Three processes: the first only waits, and ends what takes too long (a file system that hangs, a bug). The second has
the caller's rights: it reads the kernel log and writes for the admin, and touches nothing of the job's. The third
(`reader.py`) becomes the job's user before it looks at anything of the job's, and only it reads logs.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import syslog
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from aggregator import safe
from aggregator.errors import DenpexError, OutputError
from aggregator.slurm import outputs
from aggregator.slurm.config import Config, load_config
from aggregator.slurm.folder import Folder
from aggregator.slurm.hostlist import expand
from aggregator.slurm.job import job_of
from aggregator.slurm.kernel import kernel_lines
from aggregator.slurm.log import open_log, say, warn
from aggregator.slurm.outputs import label, report_name
from aggregator.slurm.processes import ends_in_time, kill, next_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aggregator.slurm.job import SlurmJob
    from aggregator.verdict import Verdict

CONTROLLER = "epilog_slurmctld"
"""Slurm's word for an epilog on the controller, which is not root and sees no logs."""
_NOT_OURS = frozenset({CONTROLLER, "epilog_task"})
"""The end of one task is not that of the job."""

_RESERVE_S = 1.0
"""What is left of the time for writing, when reading is given up."""
_WEBHOOK_S = 5.0
_LAST_WORD_S = 1.0
_NICENESS = 10
_FIRST_NODE_S = 4.0
"""The second node waits so long for a sign of the first one."""
_OTHER_NODES_S = 3.0
"""The first node of a job that failed waits so long for what the kernels of the others tell."""
_COMMENT_S = 15.0
_JSON_LIMIT = 8 << 20
_POLL_S = 0.05
_MAX_NODES = 256
"""Nodes whose kernel lines are taken."""
_CLAIM = ".claim"
_KERNEL_NAME = "denpex-{id}.kernel.{node}.log"
_KERNEL_LIMIT = 256 << 10
_UNKNOWN_START_S = 600.0
"""Reports of an earlier run of the same job id are older, where Slurm does not tell when this one began."""
_NOBODY = 65534


def run(environment: Mapping[str, str], config_path: str | None) -> None:
    """Judge the job that Slurm's environment tells of, and tell who wants to know."""
    started = time.monotonic()
    _settle()
    try:
        job = job_of(environment)
        if job.context in _NOT_OURS:
            return
        config = _config(job, config_path)
        het = environment.get("SLURM_HET_JOB_ID", "")
        run_ = _Run(job, config, started, leader=int(het) if re.fullmatch("[0-9]{1,10}", het) else None)
        if not ends_in_time(lambda: _work(run_), config.time_limit_s):
            text = outputs.one_line(job, f"not judged: gave up after {config.time_limit_s:g} s")
            # The system's log may be what hangs.
            ends_in_time(lambda: warn(text), _LAST_WORD_S)
    except DenpexError as error:
        warn(f"nothing done: {error.what}")
    except Exception as error:  # noqa: BLE001 - nobody reads what goes to standard error
        say(f"this is a bug: {type(error).__name__}: {error}", syslog.LOG_ERR)


def comment(environment: Mapping[str, str], config_path: str | None) -> str:
    """The text for the job's AdminComment, once the report is in `report_dir`; empty if none comes."""
    _settle()
    try:
        job = job_of(environment)
        config = _config(job, config_path)
        not_before, deadline = _not_before(job), time.monotonic() + _COMMENT_S
        if not config.report_dir:
            raise OutputError("a comment needs `report_dir` in the configuration")
        with Folder(config.report_dir, trusted=True) as folder:
            while (text := folder.read(report_name(job, ".json"), _JSON_LIMIT, not_before=not_before)) is None:
                if time.monotonic() > deadline:
                    return ""
                time.sleep(_POLL_S * 4)
        return outputs.comment(json.loads(text)["cause"])
    except DenpexError as error:
        warn(f"no comment: {error.what}")
    except (ValueError, TypeError, KeyError, RecursionError):
        warn("no comment: the report is damaged")
    return ""


def _settle() -> None:
    """Surroundings that nobody else has chosen, and the system's log."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - else a file of ours could become stderr
        os.set_inheritable(fd, True)
    os.close(fd)
    os.chdir("/")
    os.umask(0o077)
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", LC_ALL="C.UTF-8")
    open_log()


def _config(job: SlurmJob, path: str | None) -> Config:
    try:
        config = load_config(path)
    except DenpexError as error:
        warn(f"configuration ignored: {error.where}: {error.what}")
        return Config()
    if path is None and os.geteuid() != 0 and job.context != CONTROLLER:
        # In a user's hands, of the site's settings only those that help to read.
        return replace(config, report_dir="", exclude_file="", prometheus="", webhook="")
    return config


@dataclass(slots=True)
class _Run:
    """One run of the epilog on one node, and what it has found."""

    job: SlurmJob
    config: Config
    started: float
    leader: int | None = None
    """Of a heterogeneous job, the id of its first component: that one has the script, the log and the report."""
    folder: Folder | None = None
    nodes: tuple[str, ...] = ()
    kernel: dict[str, list[str]] | None = None
    lost: str = ""
    """The first node, if it has given no sign of life."""

    @property
    def name(self) -> str:
        return self.job.node or socket.gethostname()

    @property
    def is_alone(self) -> bool:
        """Whether no other node can have anything to say of the job."""
        return len(self.nodes) <= 1 and self.leader is None

    @property
    def left_s(self) -> float:
        """Seconds for reading."""
        reserve = _RESERVE_S + (_WEBHOOK_S if self.config.webhook else 0)
        return self.started + max(self.config.time_limit_s - reserve, self.config.time_limit_s / 2) - time.monotonic()


def _work(run: _Run) -> None:
    """What this node has to do: the job's first one reports, the second in its place, all give their kernel's lines."""
    job, config = run.job, run.config
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    run.nodes = tuple(expand(job.nodes))
    if config.report_dir:
        try:
            run.folder = Folder(config.report_dir, trusted=True)
        except OutputError as error:
            warn(f"report_dir: {error.what}")
    leads = run.leader in {None, job.id}
    place = run.nodes.index(run.name) if run.name in run.nodes else 0
    if place == 0 and leads:
        _report(run)
        return
    if run.folder is None:
        return
    if lines := _own_kernel(run):
        name = _KERNEL_NAME.format(id=run.leader or job.id, node=run.name)
        run.folder.write(name, "".join(f"{line}\n" for line in lines), 0o640)
    if place == 1 and leads and not _first_node_is_there(run, run.folder):
        run.lost = run.nodes[0]
        _report(run)


def _first_node_is_there(run: _Run, folder: Folder) -> bool:
    deadline, not_before = time.monotonic() + _FIRST_NODE_S, _not_before(run.job)
    while time.monotonic() < deadline:
        if folder.has(report_name(run.job, _CLAIM), not_before):
            return True
        time.sleep(_POLL_S)
    return not folder.take(report_name(run.job, _CLAIM), not_before)


def _not_before(job: SlurmJob) -> float:
    return float(job.start_s) if job.start_s is not None else time.time() - _UNKNOWN_START_S


def _own_kernel(run: _Run) -> list[str]:
    """What this node's kernel tells of the job; only root may ask for other people's."""
    if not run.config.kernel or os.geteuid() != 0:
        return []
    try:
        return kernel_lines(run.job, time.time())
    except Exception as error:  # noqa: BLE001 - the logs are to be judged all the same
        say(f"the kernel log is not used: {type(error).__name__}: {error}", syslog.LOG_ERR)
        return []


def _node_logs(run: _Run) -> dict[str, list[str]]:
    """The kernel lines of all nodes, those of the others as far as they come in time."""
    lines = _own_kernel(run)
    logs = {run.name: lines} if lines else {}
    deadline, not_before = time.monotonic() + min(_OTHER_NODES_S, run.left_s), _not_before(run.job)
    named = re.compile(re.escape(_KERNEL_NAME).replace(r"\{id\}", str(run.job.id)).replace(r"\{node\}", r"([\w.-]+)"))
    others = set(run.nodes) - {run.name, run.lost}
    while run.folder is not None and (run.leader is not None or others - set(logs)) and time.monotonic() < deadline:
        time.sleep(_POLL_S * 4)
        _claim(run)  # a file server's client sees the files of others at once where it has just changed the folder
        for found in filter(None, map(named.fullmatch, run.folder.names())):
            text = run.folder.read(found[0], _KERNEL_LIMIT, not_before=not_before)
            if text is not None and len(logs) < _MAX_NODES:
                logs[found[1]] = text.splitlines()
    run.kernel = logs
    return logs


def _claim(run: _Run) -> None:
    """Says to the job's other nodes that this one is at it."""
    if run.folder is not None and not run.is_alone:
        try:
            run.folder.write(report_name(run.job, _CLAIM), "", 0o640)
        except OutputError as error:
            warn(f"report_dir: {error.what}")


def _report(run: _Run) -> None:
    _claim(run)
    if run.folder is not None and not run.is_alone:
        run.folder.sweep(_CLAIM, time.time() - _UNKNOWN_START_S)
    _tell(run, _read(run))


def _read(run: _Run) -> Mapping[str, object]:
    """What the reader found out, or the problem; nothing of it can be trusted."""
    from aggregator.slurm import reader  # noqa: PLC0415 - brings the whole parser in, for the node that reports only

    deadline = time.monotonic() + run.left_s
    pid, channel = reader.start(reader.Task(run.job, run.config, run.left_s, run.lost))
    data = bytearray()
    try:
        line = next_line(channel, data, deadline, reader.RESULT_LIMIT)
        if line == reader.ASK:
            answer = json.dumps(_node_logs(run)).encode() + b"\n"
            channel.settimeout(max(deadline - time.monotonic(), 0.1))
            channel.sendall(answer)
            line = next_line(channel, data, deadline, reader.RESULT_LIMIT)
        result = json.loads(line)
        if isinstance(result, dict):
            return result
    except TimeoutError:
        return {"problem": f"reading took longer than {run.config.time_limit_s:g} s"}
    except (EOFError, OSError):
        return {"problem": f"the reader broke off (memory_mb = {run.config.memory_mb})"}
    except (ValueError, RecursionError):
        pass
    finally:
        channel.close()
        kill(pid)
    return {"problem": "the reader's result is damaged"}


def _tell(run: _Run, result: Mapping[str, object]) -> None:
    """All outputs; one that fails does not keep the others from being written."""
    job, config = run.job, run.config
    problem, document = result.get("problem"), result.get("verdict")
    try:
        verdict = outputs.checked_verdict(document, job)
    except (ValueError, TypeError):
        warn(outputs.one_line(job, f"not judged: {problem or 'the verdict is damaged'}"))
        return
    seconds = time.monotonic() - run.started
    report = result.get("report")
    where = f"; report: {report}" if isinstance(report, str) else ""
    say(outputs.one_line(job, f"{outputs.cause(job, verdict, run.lost)}{where}; {seconds:.2f} s"))
    if isinstance(note := result.get("note"), str):
        warn(f"no report in the job's folder: {note}")
    tasks: list[Callable[[], object]] = []
    if not outputs.ended_well(job, verdict, run.lost):
        cause = outputs.cause(job, verdict, run.lost)
        tasks += [lambda: _write_reports(run, cause, document, result.get("text")), lambda: _exclude(run, verdict)]
        if config.webhook:
            tasks.append(lambda: _notify(config.webhook, verdict))
    if config.prometheus:
        tasks.insert(0, lambda: _count(config.prometheus, verdict, seconds))
    for task in tasks:
        try:
            task()
        except DenpexError as error:
            warn(f"{error.where}: {error.what}")
        except (ValueError, RecursionError):
            warn("an output was not written: the reader's result is damaged")


def _write_reports(run: _Run, cause: str, document: object, text: object) -> None:
    """The report, and last the verdict, with the cause in one line: who waits for it waits for both."""
    if run.folder is None:
        return
    shown = outputs.clean_document(document)
    if isinstance(shown, dict):
        texts = {".json": json.dumps(shown | {"cause": cause}, indent=2) + "\n"}
        if isinstance(text, str):
            texts = {".txt": safe.show_block(text)} | texts
        for suffix, content in texts.items():
            run.folder.keep(report_name(run.job), suffix)
            run.folder.write(report_name(run.job, suffix), content, 0o640, group_of_folder=True)


def _exclude(run: _Run, verdict: Verdict) -> None:
    place = Path(run.config.exclude_file)
    hosts = outputs.hosts_to_rest(verdict, run.nodes, run.kernel or {}) if run.config.exclude_file else []
    for node, line in hosts:
        with Folder(str(place.parent), trusted=True) as folder:
            outputs.exclude(folder, place.name, run.job, verdict, node, line, time.time())
        say(f"{node} added to {place} after job {label(run.job)}", syslog.LOG_NOTICE)


def _count(path: str, verdict: Verdict, seconds: float) -> None:
    place = Path(path)
    with Folder(str(place.parent), trusted=True) as folder:
        outputs.count_job(folder, place.name, verdict, seconds)


def _notify(url: str, verdict: Verdict) -> None:
    if not ends_in_time(lambda: _post(url, verdict), _WEBHOOK_S):
        warn(f"webhook: no answer in {_WEBHOOK_S:g} s")


def _post(url: str, verdict: Verdict) -> None:
    """Posts to the webhook, without log text, and not as root."""
    from aggregator.notify import FailureMessage, NotifyError  # noqa: PLC0415 - needed for failures only
    from aggregator.notify.webhook import WebhookNotifier  # noqa: PLC0415 - as above

    notifier = WebhookNotifier(url)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    try:
        notifier.send(FailureMessage(verdict))
    except NotifyError as error:
        warn(f"webhook: {error}")
