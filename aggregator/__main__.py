"""The program's entry: `denpex-agg` and `python -m aggregator`."""

from __future__ import annotations

import sys

from aggregator import __version__


def main() -> int:
    """Run the command line of this process and return its exit code.

    The version is answered before anything slow is imported: scripts ask for it often.
    """
    arguments = sys.argv[1:]
    if arguments in (["-V"], ["--version"]):
        sys.stdout.write(f"denpex-agg {__version__}\n")
        return 0
    from aggregator.cli import run  # noqa: PLC0415 - see above

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
