"""What a query may be, and what is wrong with one, in words.

Polars runs it (https://docs.pola.rs/api/python/stable/reference/sql/). Only SELECT is let through, without the table
functions that read any file; other statements have nothing to act on.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

import polars as pl

from aggregator.errors import DenpexError, InputError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TABLES = ("events", "signals")
_LONGEST = 4000
"""Characters of a query. Polars recurses over its parts: some thousands of them would be the end of the process."""
_COMMENT = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
_BEGINNING = re.compile(rf"{_COMMENT}\(*{_COMMENT}(select|with)\b", re.IGNORECASE | re.DOTALL)
# Wherever it stands, in a string too: what is a string is the parser's to say, and it may know spellings that we don't.
_READER = re.compile(r"\b((?:read|scan)_\w+)[\"'`\]]?\s*(?:\(|/\*|--)", re.IGNORECASE)
_SCAN = re.compile(r"^\s*\w+ SCAN \[", re.MULTILINE)
"""A file in a plan, as Polars prints it."""
_NOT_FILES = "a query reads the job's tables only, not files"
_AT = re.compile(r" at Line: (\d+), Column: (\d+)")
_UNKNOWN_COLUMN = re.compile(r"unable to find column \"(.*?)\"|no table or struct column named '(.*?)'")
_UNKNOWN_TABLE = re.compile(r"relation '(.*?)' was not found")
_UNKNOWN_FUNCTION = re.compile(r"unsupported function '(.*?)'")
_DAMAGE = re.compile(r"parquet|thrift|out.of.spec|decompress|zstd|unexpected (?:eof|end)", re.IGNORECASE)
_REFERENCE = "its SQL: https://docs.pola.rs/api/python/stable/reference/sql/"
_LINE = 300
"""Characters that are shown of what Polars says."""


def check(query: str) -> None:
    """Let a query through that reads our tables and does nothing else.

    Raises:
        UsageError: it is something else.
    """
    if len(query) > _LONGEST:
        raise UsageError(f"the query is longer than {_LONGEST:,} characters", help="filter the output instead")
    if not _BEGINNING.match(query):
        raise UsageError("a query begins with SELECT or WITH", help="select * from events limit 10")
    if not any(reads(query, table) for table in TABLES):
        raise UsageError("the query reads no table", help=f"the tables are {' and '.join(TABLES)}")
    reader = _READER.search(query)
    if reader is not None:
        raise UsageError(
            f"{_NOT_FILES}: {reader[1]}",
            help="the tables are `events` and `signals`; in a text to search for, leave the parenthesis out",
        )


def check_plan(query: str, empty: Mapping[str, pl.LazyFrame]) -> None:
    """Refuse a query that is wrong, or whose plan reads more than `empty`, tables in memory in place of the real ones.

    So a function that reads files and that `check` does not know is found before its rows are.

    Raises:
        UsageError: it is, or does.
    """
    frame = run(query, empty)
    with explained(empty):
        if _SCAN.search(frame.explain(optimized=False)):
            raise UsageError(_NOT_FILES, help=f"the tables are {' and '.join(TABLES)}")


def reads(query: str, table: str) -> bool:
    """Whether a query may read a table: its name is in it."""
    return re.search(rf"\b{table}\b", query, re.IGNORECASE) is not None


def run(query: str, tables: Mapping[str, pl.LazyFrame]) -> pl.LazyFrame:
    """The query, which nothing has read for yet, with its columns resolved.

    Raises:
        UsageError: it is wrong.
        InputError: a table cannot be read.
    """
    with explained(tables):
        frame = pl.SQLContext(tables, register_globals=False).execute(query, eager=False)
        frame.collect_schema()
    return frame


class explained:  # noqa: N801 - used as a statement
    """Turns what Polars says of a query into words for its author."""

    def __init__(self, tables: Mapping[str, pl.LazyFrame]) -> None:
        self._tables = tables

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, pl.exceptions.PolarsError | pl.exceptions.PanicException):
            raise _error(error, self._tables) from None


def _error(error: BaseException, tables: Mapping[str, pl.LazyFrame]) -> DenpexError:
    text = str(error).partition("\n\nResolved plan")[0].partition("\n\nThis error occurred")[0]
    if isinstance(error, pl.exceptions.PanicException):
        return UsageError("Polars cannot run this query", help="say it in another way")
    columns = sorted({name for table in tables.values() for name in table.collect_schema().names()})
    unknown = _UNKNOWN_COLUMN.search(text)
    if unknown is not None:
        name = unknown[1] or unknown[2]
        return UsageError(f"no column {name!r}", help=_near(name, columns, "`query PATH --schema` lists them"))
    unknown = _UNKNOWN_TABLE.search(text)
    if unknown is not None:
        return UsageError(
            f"no table {unknown[1]!r}", help=_near(unknown[1], TABLES, f"there are {' and '.join(TABLES)}")
        )
    unknown = _UNKNOWN_FUNCTION.search(text)
    if unknown is not None:
        return UsageError(f"no function {unknown[1]!r}", help=_REFERENCE)
    at = _AT.search(text)
    if at is None and _DAMAGE.search(text):
        return InputError("the table is damaged", help="export it anew")
    what = " ".join(_AT.sub("", text).removeprefix("sql parser error: ").split())[:_LINE].rstrip(".")
    where = None if at is None else f"line {at[1]}, column {at[2]} of the query"
    return UsageError(f"the query is wrong: {what}", where=where, help=_REFERENCE)


def _near(name: str, known: Sequence[str], otherwise: str) -> str:
    found = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    return f"perhaps {' or '.join(found)}" if found else otherwise
