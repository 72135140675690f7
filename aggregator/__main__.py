"""The program's entry: `denpex-agg` and `python -m aggregator`."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from aggregator import __version__
from aggregator.streams import complain, settle

_GARBAGE = 100_000
"""New objects after which garbage is looked for: what imports make, and what is parsed of a log, is none."""


def main() -> int:
    """Run the command line of this process and return its exit code.

    The version is answered before anything slow is imported: scripts ask for it often.
    """
    settle()
    arguments = sys.argv[1:]
    if arguments in (["-V"], ["--version"]):
        with contextlib.suppress(OSError):  # told by the ordinary way
            sys.stdout.write(f"denpex-agg {__version__}\n")
            sys.stdout.flush()
            return 0
    gc.set_threshold(_GARBAGE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's algebra, which nothing here uses, starts one a core
    from aggregator.cli import run  # noqa: PLC0415 - see above

    code = run(arguments)
    complain("")  # what standard error still holds: the interpreter would make an exit code of its own of a full disk
    gc.freeze()  # the interpreter looks through all objects once more as it ends: a sixth of the time of a small job
    return code


if __name__ == "__main__":
    sys.exit(main())
