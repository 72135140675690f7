"""Runs the app on a real terminal, for a test at its other end: `hostile`, `innocent` or `broken`."""

import signal
import sys

from tui_hostile import FULL, PAYLOADS, poisoned
from tui_views import healthy

from aggregator import cli
from aggregator.tui.app import WatchApp


def broken():
    token = "hf_" + "Abcdefghij" * 3 + "Klmn"
    raise RuntimeError(f"\x1b]52;c;eA==\x07 no picture for {token}")


def main(mode):
    source = {"hostile": lambda: hostile, "innocent": lambda: FULL, "broken": broken, "healthy": healthy}[mode]
    hostile = poisoned(FULL, " ".join(PAYLOADS))
    signal.signal(signal.SIGTERM, cli._terminate)
    try:
        WatchApp(source, redact=True, on_postmortem=lambda: None).run_to_end()
    except Exception as error:  # noqa: BLE001 - the border of the program, as its command line has it
        return cli._explain(error, is_debug=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
