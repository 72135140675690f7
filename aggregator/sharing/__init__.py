"""What leaves the house: jobs without names, and bundles of them for bug reports."""

from typing import Annotated, TypeAlias

import typer

Anonymise: TypeAlias = Annotated[
    bool, typer.Option("--anonymise", help="Other names for hosts, users, addresses, folders and jobs.")
]
