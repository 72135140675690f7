"""The child process that reads one job: `python -P -m aggregator.serve.reader`.

On standard input comes a line of JSON (a `Task`), then the bytes of an upload to their end; on standard output goes one
JSON object, an `Answer`. Secrets are masked in all of it.
"""

from __future__ import annotations

import io
import json
import os
import resource
import sys
from contextlib import suppress
from dataclasses import asdict

from aggregator import safe
from aggregator.case import Case
from aggregator.catalogue.naming import SHIPPED
from aggregator.correlate.judge import judge_job
from aggregator.errors import DenpexError, InputError
from aggregator.pipeline import collect, investigate
from aggregator.reports import ReportOptions, reporter
from aggregator.reports.summary import Summary
from aggregator.serve.task import BUG, NOT_A_JOB, OK, TOO_MUCH, Answer, Task
from aggregator.serve.upload import BUDGET, TooMuchError, discover_upload
from aggregator.slurm.privileges import limit_itself

MEMORY_MB = 4096
_TEXT = 400


def main() -> None:
    """Read the task, do it, and tell."""
    task = Task(**json.loads(sys.stdin.buffer.readline()))
    with suppress(ValueError):  # macOS lets nobody bound his memory
        limit_itself(MEMORY_MB, task.time_s)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # from now on no byte of this process can get into a file
    sys.stdout.buffer.write(json.dumps(asdict(_answer(task))).encode())


def _answer(task: Task) -> Answer:
    try:
        return _report(_judged(task))
    except DenpexError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        status = TOO_MUCH if isinstance(error, TooMuchError) else NOT_A_JOB
        return Answer(status, _clean(what), _clean(error.help or ""))
    except MemoryError:
        return Answer(TOO_MUCH, f"it needs more than {MEMORY_MB} MB of memory", "run denpex-agg postmortem on it")
    except Exception as error:  # noqa: BLE001 - the process's border
        return Answer(BUG, _clean(f"this is a bug: {type(error).__name__}: {error}"), "please report it")


def _judged(task: Task) -> Case:
    if task.path:
        if os.path.realpath(task.path) != task.path:
            raise InputError("it has become a link", where=task.path)
        return investigate([task.path], workers=1)
    found = discover_upload(task.name, sys.stdin.buffer.read(), task.changed_s)
    judged = judge_job(collect(found, budget=BUDGET), SHIPPED)
    return Case(judged.verdict, judged)


def _report(case: Case) -> Answer:
    verdict = case.verdict
    sources = case.judged.evidence.sources if case.judged is not None else ()
    changed_ns = max((source.mtime_ns for source in sources if source.mtime_ns is not None), default=None)
    return Answer(
        OK, Summary(verdict, redact=True).headline(), outcome=verdict.outcome.value, changed_ns=changed_ns,
        html=_rendered("html", case), json=_rendered("json", case),
    )  # fmt: skip


def _rendered(form: str, case: Case) -> str:
    out = io.StringIO()
    reporter(form, ReportOptions()).render(case, out)
    return out.getvalue()


def _clean(text: str) -> str:
    return safe.show(safe.mask(text), _TEXT)


if __name__ == "__main__":
    main()
