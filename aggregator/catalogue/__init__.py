"""The catalogue: names a first failure among its siblings, and says why, what to change and how to prove it.

It looks at a failure after the correlator has found it, over typed facts of the whole run, and never says who was
first. docs/entries.md tells how an entry is written.
"""
