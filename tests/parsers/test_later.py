"""Patterns that are compiled later are patterns all the same."""

import gc
import importlib
import pkgutil
import re

import pytest

import aggregator
import parsers
from parsers.later import _Later, later


def test_it_does_what_a_pattern_does():
    pattern, made = later(r"(?P<n>\d+)x", re.IGNORECASE), re.compile(r"(?P<n>\d+)x", re.IGNORECASE)
    assert pattern.search("a12X")["n"] == "12"
    assert pattern.match("a12X") is None
    assert pattern.sub("-", "1x 2x") == made.sub("-", "1x 2x")
    assert pattern.pattern == made.pattern
    assert pattern.groupindex == made.groupindex
    assert pattern.search is pattern.search  # found without a detour the second time
    with pytest.raises(AttributeError):
        pattern.no_such_thing  # noqa: B018


def test_every_one_of_ours_compiles():
    for package in (aggregator, parsers):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "." not in module.name.removeprefix("aggregator.").removeprefix("parsers."):
                importlib.import_module(module.name)
    found = [item for item in gc.get_objects() if isinstance(item, _Later)]
    assert len(found) > 50
    for item in found:
        re.compile(item.pattern, item._flags)
