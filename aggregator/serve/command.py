"""The command `serve`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aggregator.errors import UsageError
from aggregator.reports.destination import standard_output
from aggregator.streams import complain

if TYPE_CHECKING:
    from aggregator.serve.server import Server
    from aggregator.serve.site import Site

_MOST_PORT = 65535
_INTERRUPTED = 130


def serve(
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="List the jobs in this folder, each a folder.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=_MOST_PORT, help="Port; any that is free if 0.")
    ] = 0,
    is_opened: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Serve a page on this machine only, to paste or drop a log into; its address is a secret. Ctrl-C ends it.

    What is given stays in memory, and is gone at the end.

    \b
    Examples:
      denpex-agg serve --open
      denpex-agg serve --root /runs
      denpex-agg serve --root /runs --port 8642    # here: ssh -L 8642:127.0.0.1:8642 login-node
    """
    import resource  # noqa: PLC0415 - help does without it

    from aggregator.catalogue.entries import default_catalogue  # noqa: PLC0415 - as above
    from aggregator.serve.jobs import Root  # noqa: PLC0415 - as above
    from aggregator.serve.judging import Judges  # noqa: PLC0415 - as above
    from aggregator.serve.site import Site  # noqa: PLC0415 - as above
    from parsers.lexicon import default_lexicon  # noqa: PLC0415 - as above

    site_root = None if root is None else Root(root)
    judges = Judges()
    server = _listening(port, Site(judges, site_root))
    with standard_output() as out:
        out.write(f"{server.url}\n")
        out.flush()
    default_lexicon()  # what is kept of our own files between runs is made now: from here on no byte gets into a file
    default_catalogue().all()
    if is_opened:
        _open(server.url)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None
    finally:
        server.server_close()
        judges.close()


def _listening(port: int, site: Site) -> Server:
    from aggregator.serve.server import Server  # noqa: PLC0415 - help does without it

    try:
        return Server(port, site)
    except OSError as error:
        where, help_text = f"127.0.0.1:{port}", "name another one, or none: any that is free is taken"
        raise UsageError(f"this port cannot be had: {error.strerror}", where=where, help=help_text) from None


def _open(url: str) -> None:
    """Where there is a screen: without one, a browser of text would take the terminal."""
    import webbrowser  # noqa: PLC0415 - rarely asked for

    has_screen = sys.platform != "linux" or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")))
    if not has_screen or not webbrowser.open(url):
        complain("no browser can be opened here: open the address above\n")
