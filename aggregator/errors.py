"""What can go wrong through no fault of the program, and the exit code each kind ends with.

    DenpexError            never raised itself
    ├── UsageError     2   the command line asks for something that cannot be done
    ├── InputError     3   the job's files are missing, or none of them can be read
    └── OutputError    4   a report cannot be written

Damaged input is no error: what could not be read is listed in every report (`records.Skipped`, `opening.ReadNotes`).
"""

from __future__ import annotations

from typing import ClassVar

EXIT_CODES = (
    "Exit codes: 0 done, whatever was found; 1 a bug of ours; 2 usage; 3 input missing or unreadable; "
    "4 output refused; 130 interrupted; 143 terminated."
)
"""What every command says of them in its help."""


class DenpexError(Exception):
    """A mistake that the user can mend.

    `what` is one sentence without a full stop, `where` a path (or `path:line`) or None, `help` what to do about it or
    None. Shown as `error: what` / `  --> where` / `  = help: help`.
    """

    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        help: str | None = None,  # noqa: A002 - the word that the user sees
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.help = help


class UsageError(DenpexError):
    """The command line asks for something that cannot be done."""

    exit_code = 2


class InputError(DenpexError):
    """The job's files are missing, or none of them can be read."""

    exit_code = 3


class OutputError(DenpexError):
    """A report cannot be written."""

    exit_code = 4
