"""Where the lines that a report cites are on this machine, for programs that open them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aggregator.remote import is_url

if TYPE_CHECKING:
    from aggregator.case import Case
    from aggregator.verdict import Failure


def absolute_path(case: Case, file: str) -> str:
    """The file that evidence cites, as an absolute path; one that cannot be found is looked for below the job's.

    Not safe to show: file names are the job's.
    """
    if case.judged is not None:
        for source in case.judged.evidence.sources:
            if source.path == file and source.real is not None:
                return os.path.abspath(source.real)  # noqa: PTH100 - links stay as the user knows them
    if is_url(case.verdict.job.path):
        return f"{case.verdict.job.path.rstrip('/')}/{file}"
    return os.path.abspath(os.path.join(case.verdict.job.path, file))  # noqa: PTH100, PTH118 - see above


def source_place(failure: Failure) -> tuple[str, int] | None:
    """File and line of the user's code that failed first, as its traceback names them."""
    file, _, line = (failure.location or "").rpartition(":")
    return (file, int(line)) if file and line.isascii() and line.isdigit() else None
