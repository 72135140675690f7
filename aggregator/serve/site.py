"""What is at each address of the site, without a word of HTTP."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from aggregator import safe
from aggregator.history.shown import failure_words
from aggregator.reports.words import moment
from aggregator.serve.pages import Row, Upload, page, problem_page, report_policy
from aggregator.serve.task import OK, Answer
from aggregator.verdict import Outcome

if TYPE_CHECKING:
    from aggregator.serve.jobs import Job, Root
    from aggregator.serve.judging import Judges

MOST_UPLOAD = 128 << 20
"""Bytes of an upload."""
_KEPT = 8
"""Results of uploads, and of jobs, that are kept; with one more, the one that was asked for longest ago goes."""
_FRESH_S = 10.0
"""Seconds for which a job is not read anew."""
_NAME = 100
_NS_PER_S = 1_000_000_000
_NOW_NS, _LIVE_NS = 60 * _NS_PER_S, 600 * _NS_PER_S
"""A job whose files changed since is being written; it is asked for again and again."""
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_NOT_FOUND = 404
NOTHING_HERE = ("there is nothing here", "open the address that denpex-agg serve has printed")
"""What, and what to do."""


@dataclass(frozen=True, slots=True)
class Response:
    """What goes back: `policy` is the Content-Security-Policy."""

    status: int
    kind: str
    body: str
    policy: str = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class _Result:
    name: str
    answer: Answer
    at_s: float


class _Latest:
    """The results that were asked for last, by their numbers. Threads may use it at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: OrderedDict[str, _Result] = OrderedDict()

    def put(self, number: str, result: _Result) -> None:
        with self._lock:
            self._results[number] = result
            self._results.move_to_end(number)
            while len(self._results) > _KEPT:
                self._results.popitem(last=False)

    def get(self, number: str) -> _Result | None:
        with self._lock:
            if number in self._results:
                self._results.move_to_end(number)
            return self._results.get(number)

    def all(self) -> list[tuple[str, _Result]]:
        with self._lock:
            return list(self._results.items())


class Site:
    """The pages of one server. Threads may call it at once."""

    def __init__(self, judges: Judges, root: Root | None) -> None:
        self._judges = judges
        self._root = root
        self._uploads = _Latest()
        self._jobs = _Latest()
        self._known: dict[str, Answer] = {}
        """Of each job that was read, what its row in the list says."""

    def get(self, path: str) -> Response:
        """The page at a path."""
        match path.split("/"):
            case [""]:
                return self._page()
            case ["upload", name]:
                number, _, form = name.partition(".")
                result = self._uploads.get(number)
                return _missing() if result is None else _told(result.answer, form)
            case ["job", job] if self._root is not None:
                number, _, form = job.partition(".")
                answer = self._job(number)
                return _missing() if answer is None else _told(answer, form)
        return _missing()

    def post(self, path: str, query: str, data: bytes) -> Response:
        """Takes an upload; `query` has its `name` and `changed`, ms since the epoch, both of which may be missing."""
        if path != "upload":
            return _missing()
        asked = parse_qs(query)
        name, changed = asked.get("name", [""])[0], asked.get("changed", [""])[0]
        changed_s = int(changed) / 1000 if re.fullmatch(r"[0-9]{1,15}", changed) else None
        answer = self._judges.upload(name, data, changed_s)
        if answer.status != OK:
            return problem(answer.status, answer.headline, answer.help, is_upload=True)
        number = secrets.token_urlsafe(9)
        shown = safe.show(safe.mask(name), _NAME) or "pasted text"
        self._uploads.put(number, _Result(shown, answer, time.monotonic()))
        return Response(OK, _JSON, json.dumps({"report": f"upload/{number}"}))

    def _job(self, number: str) -> Answer | None:
        assert self._root is not None
        result = self._jobs.get(number)
        if result is not None and time.monotonic() - result.at_s < _FRESH_S:
            return result.answer
        try:
            path = self._root.path_of(number)
        except OSError:
            return None
        if path is None:
            return None
        answer = self._judges.folder(path)
        self._jobs.put(number, _Result(path, answer, time.monotonic()))
        self._known[number] = replace(answer, html="", json="")
        return answer

    def _page(self) -> Response:
        uploads = [Upload(number, result.name, result.answer) for number, result in self._uploads.all()]
        try:
            rows = None if self._root is None else [self._row(job) for job in self._root.jobs()]
        except OSError as error:
            return problem(500, f"the folder of the jobs cannot be listed: {error.strerror}", "")
        root = "" if self._root is None else self._root.name
        return Response(OK, _HTML, *page(root, rows, uploads[::-1], MOST_UPLOAD >> 20))

    def _row(self, job: Job) -> Row:
        changed, outcome, verdict = job.changed_ns, "", "not read yet"
        known = self._known.get(job.id)
        if known is not None:
            changed, outcome, verdict = known.changed_ns or changed, known.outcome, known.headline
        elif job.kept is not None:
            ending = job.kept.last
            told = f"first failure: {failure_words(ending)}" if ending.kind else "no rank failed"
            outcome, verdict = ending.outcome, f"{told} (as of {moment(job.kept.recorded)})"
        return Row(job.id, job.name, moment(changed) or "", outcome, verdict, is_watched=job.is_watched)


def _told(answer: Answer, form: str) -> Response:
    """An answer as a page, as the verdict's JSON, or as what its row in the list says."""
    if form == "row":
        quiet_ns = time.time_ns() - (answer.changed_ns or 0)
        told = {
            "outcome": answer.outcome or "not read",
            "written": quiet_ns < _NOW_NS,
            "verdict": " ".join(filter(None, (answer.headline, answer.help and f"({answer.help})"))),
            "changed": moment(answer.changed_ns),
            "live": answer.outcome != Outcome.COMPLETED and quiet_ns < _LIVE_NS,
        }
        return Response(OK, _JSON, json.dumps(told))
    if form not in {"", "json"}:
        return _missing()
    if answer.status != OK:
        return problem(answer.status, answer.headline, answer.help)
    return Response(OK, _JSON, answer.json) if form else Response(OK, _HTML, answer.html, report_policy())


def _missing() -> Response:
    return problem(_NOT_FOUND, *NOTHING_HERE)


def problem(status: int, what: str, help_text: str, *, is_upload: bool = False) -> Response:
    """Says what is wrong and what to do: on a page, or to the page's script, which shows it."""
    if is_upload:
        return Response(status, _JSON, json.dumps({"problem": what, "help": help_text}))
    return Response(status, _HTML, *problem_page(what, help_text))
