"""Inputs for `bench/fuzz.py`: how they are made, what takes them, and how a process that takes them is watched."""
