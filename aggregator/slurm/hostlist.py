"""Slurm's host lists: `node[01-03,07],gpu-a03,rack[1-2]n[08-09]`.

Source: src/common/hostlist.c of Slurm 20.11 to 25.11. The order of the list is that of the node numbers.
"""

from __future__ import annotations

import math
import re
from itertools import product

_ITEM = re.compile(r"(?:[A-Za-z0-9_.-]++|\[[0-9,-]++\])++(?=,|\Z)")
_PART = re.compile(r"\[([0-9,-]+)\]|([A-Za-z0-9_.-]+)")
_RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_MAX_TEXT = 1 << 20


def expand(text: str, limit: int = 65536) -> list[str]:
    """The hosts of a list, in its order; none if it is malformed or names more than `limit`."""
    hosts: list[str] = []
    at = 0
    while 0 < len(text) <= _MAX_TEXT:
        item = _ITEM.match(text, at)
        if item is None:
            return []
        groups = [_numbers(found[1], limit) if found[1] else [found[2]] for found in _PART.finditer(item[0])]
        count = math.prod(map(len, groups))
        if count == 0 or len(hosts) + count > limit:
            return []
        hosts += map("".join, product(*groups))
        at = item.end() + 1
        if at > len(text):
            break
    return hosts


def _numbers(ranges: str, limit: int) -> list[str]:
    """The numbers between brackets, as wide as the lower end of each range is written; none if malformed."""
    numbers: list[str] = []
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text)
        if found is None:
            return []
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first or len(numbers) + last - first >= limit:
            return []
        numbers += [f"{number:0{len(found[1])}}" for number in range(first, last + 1)]
    return numbers
