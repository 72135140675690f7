"""How often verdicts of each basis are right, on labelled runs; prints the table for `aggregator.correlate.confidence`.

A labelled run is a folder with the job's logs in `job/` and the truth beside them in `truth.json`: of it
`first_failure.ranks`, `undetermined_ok` (the logs cannot tell) and `ranks_ok` (other right answers) are used.

    python bench/calibrate.py DIR…
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from aggregator.correlate.confidence import Basis, confidence
from aggregator.pipeline import postmortem
from aggregator.verdict import Failure, Status


def is_right(failure: Failure, label: dict[str, Any]) -> bool:
    """Whether a failure names the labelled ranks, or leaves open what the label says cannot be told."""
    want = label.get("first_failure")
    if want is None:
        return False
    ranks = set(want.get("ranks", []))
    may_be_open = label.get("undetermined_ok", False) or not ranks
    if failure.status is Status.IDENTIFIED:
        return any(set(failure.ranks) == set(other) for other in (ranks, *label.get("ranks_ok", [])))
    return may_be_open and (not ranks or not failure.ranks or bool(ranks & set(failure.ranks)))


def main(roots: list[str]) -> int:
    """Count over every labelled run below the folders."""
    labels = sorted({path for root in roots for path in Path(root).rglob("truth.json")})
    right: Counter[Basis] = Counter()
    seen: Counter[Basis] = Counter()
    squares = []
    for path in labels:
        failure = postmortem([str(path.parent / "job")]).first_failure
        if failure is None:
            continue
        basis, good = Basis(failure.basis), is_right(failure, json.loads(path.read_text(encoding="utf-8")))
        seen[basis] += 1
        right[basis] += good
        squares.append((failure.confidence - good) ** 2)
        if not good:
            print(f"# wrong: {path.parent.name}: {failure.status} {list(failure.ranks)}, {basis.name}")
    print("MEASURED: dict[Basis, tuple[int, int]] = {")
    for basis in Basis:
        print(f"    Basis.{basis.name}: ({right[basis]}, {seen[basis]}),  # stated until now: {confidence(basis):.2f}")
    print("}")
    if squares:
        brier = sum(squares) / len(squares)
        print(f"# {len(squares)} failures; Brier score of the confidence stated until now {brier:.3f}")
    return 0 if labels else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
