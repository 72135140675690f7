"""Keeps the verdicts of this user's jobs, so that causes, hosts and GPUs that fail again are seen."""

from typing import Annotated

import typer

NoHistory = Annotated[bool, typer.Option("--no-history", help="Don't keep the verdict for `history`.")]
"""The option of commands whose verdicts are kept."""
