"""Finds the rank that failed first in a distributed run, and proves it."""

__version__ = "0.1.0"
