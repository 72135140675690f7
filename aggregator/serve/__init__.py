"""A page on this machine only: paste or drop a log, and see the jobs under a folder, with the verdicts of `postmortem`.

The process that talks HTTP reads no log. Each job is read by a child that is ended in time, may write no file, and
gives back a report whose secrets are masked; nothing else is kept.
"""
