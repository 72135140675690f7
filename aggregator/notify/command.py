"""Runs a command of the user's when a job fails, with the verdict on its standard input."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING

from aggregator import safe
from aggregator.case import Case
from aggregator.errors import UsageError
from aggregator.notify import FailureMessage, NotifyError
from aggregator.reports import ReportOptions
from aggregator.reports.json import JsonReporter
from aggregator.reports.words import rank_ranges

if TYPE_CHECKING:
    from aggregator.verdict import Verdict

TIME_LIMIT_S = 30.0
OUTPUT_LIMIT = 4096
"""Bytes of the command's output that are logged."""
VALUE_LIMIT = 200
"""Characters of an environment variable."""

_LAST_WORDS_S = 0.5
_UNSAFE = re.compile(r"[^A-Za-z0-9_.:-]")
_log = logging.getLogger(__name__)


class CommandNotifier:
    """Runs `command`, split as a shell would but without a shell: no variables, pipes or redirections.

    It gets the verdict as `--json` prints it on standard input, and, beside our environment, DENPEX_OUTCOME,
    DENPEX_JOB_ID, DENPEX_RANKS (`3` or `0-2,5`; empty if no rank can be named) and DENPEX_CORRECTION (`1` if an earlier
    message blamed other ranks, else `0`). Its output goes to our log at debug level. After `time_limit_s` seconds it is
    killed with all that it started.
    """

    name = "--on-failure"

    def __init__(self, command: str, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        """Find the program.

        Raises:
            UsageError: the command is empty, has an open quote, or its program does not exist.
        """
        try:
            words = shlex.split(command)
        except ValueError:
            raise UsageError("--on-failure has a quote that is not closed", help="quote it as for a shell") from None
        program = shutil.which(words[0]) if words else None
        if program is None:
            name = words[0] if words else ""
            raise UsageError(
                f"--on-failure names no program that can be run: '{name}'",
                help="give a program on PATH or a path to one; for pipes and variables write sh -c '...'",
            )
        # As a full path, for the working folder may be another one by then.
        self._argv = [str(Path(program).absolute()), *words[1:]]
        self._time_limit_s = time_limit_s

    def send(self, message: FailureMessage) -> None:
        """Run the command and wait for its end.

        Raises:
            NotifyError: it can't be started, ends with an error or takes too long.
        """
        try:
            # A file and not a pipe: a command that does not read its input can't block us.
            with tempfile.TemporaryFile() as given:
                given.write(_report(message))
                given.seek(0)
                process = subprocess.Popen(
                    self._argv,
                    bufsize=0,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env=os.environ | _facts(message),
                    start_new_session=True,
                )
        except OSError as error:
            raise NotifyError(f"the command cannot be started: {error.strerror}") from None
        code = self._finish(process)
        if code is None:
            raise NotifyError(f"the command was killed, as it ran for more than {self._time_limit_s:g} s")
        if code:
            end = f"exit code {code}" if code > 0 else f"signal {-code}"
            raise NotifyError(f"the command ended with {end}")

    def _finish(self, process: subprocess.Popen[bytes]) -> int | None:
        """Wait for the end of the command, log what it wrote and give its exit code; None if it had to be killed."""
        kill = functools.partial(_kill_group, process.pid)
        atexit.register(kill)  # we may be told to end before it does
        output = bytearray()
        reader = threading.Thread(target=_drain, args=(process.stdout, output), daemon=True)
        reader.start()
        try:
            code = process.wait(self._time_limit_s)
        except subprocess.TimeoutExpired:
            code = None
            kill()
            process.wait()
        finally:
            atexit.unregister(kill)
        reader.join(_LAST_WORDS_S)  # not for ever: a process that it left behind may hold the pipe
        if output:
            _log.debug("--on-failure wrote: %s", safe.show(safe.mask(output.decode(errors="replace"))))
        return code


def _report(message: FailureMessage) -> bytes:
    out = io.StringIO()
    JsonReporter(ReportOptions(redact=message.redact)).render(Case(message.verdict), out)
    return out.getvalue().encode()


def _facts(message: FailureMessage) -> dict[str, str]:
    verdict: Verdict = message.verdict
    ranks = verdict.first_failure.ranks if verdict.first_failure else ()
    job = verdict.job.id or ""
    return {
        "DENPEX_OUTCOME": verdict.outcome.value,
        "DENPEX_JOB_ID": _UNSAFE.sub("_", safe.mask(job) if message.redact else job)[:VALUE_LIMIT],
        "DENPEX_RANKS": safe.show(rank_ranges(ranks).replace(" ", ""), VALUE_LIMIT),
        "DENPEX_CORRECTION": str(int(message.correction)),
    }


def _drain(pipe: IO[bytes], output: bytearray) -> None:
    """Read to the end, so that the command never waits for us, and keep the first bytes."""
    with pipe:
        while chunk := pipe.read(1 << 16):
            output += chunk[: OUTPUT_LIMIT - len(output)]


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
