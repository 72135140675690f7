"""Where the watch of a job keeps its state: never beside the user's logs."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from aggregator.errors import UsageError
from aggregator.remote import is_url, shown


def state_home(state_dir: Path | None) -> Path:
    """The folder of all watches: what the user named, else that of the XDG base directory specification 0.8."""
    if state_dir is not None:
        return state_dir.absolute()
    told = os.environ.get("XDG_STATE_HOME", "")
    if Path(told).is_absolute():
        return Path(told) / "denpex-agg"
    try:
        return Path.home() / ".local" / "state" / "denpex-agg"
    except RuntimeError:
        raise UsageError(
            "there is no home folder to keep the state in", help="name a folder with --state-dir"
        ) from None


def run_folder(paths: Sequence[str], state_dir: Path | None) -> Path:
    """The folder of the watch of `paths`, the same each time.

    Raises:
        UsageError: it would lie among the logs, or standard input is named.
    """
    if "-" in paths:
        raise UsageError("standard input cannot be watched", help="denpex-agg postmortem - reads it to its end")
    if urls := [path for path in paths if is_url(path)]:
        raise UsageError("a URL cannot be watched", where=shown(urls[0]), help="postmortem reads it as it is now")
    if not all(paths):
        raise UsageError("a path is empty", help="denpex-agg watch FOLDER")
    real = sorted(os.path.realpath(path) for path in paths)
    home = state_home(state_dir)
    for path in real:
        if Path(os.path.realpath(home)).is_relative_to(path):
            raise UsageError(
                "the state would lie among the logs", where=str(home), help="name another folder with --state-dir"
            )
    name = re.sub(r"[^A-Za-z0-9._-]", "_", Path(real[0]).name)[:60]
    digest = hashlib.sha256("\0".join(real).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return home / f"{name}-{digest}"
