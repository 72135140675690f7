"""Follows the files of a running job: which there are, whose content each holds, and the bytes that come."""
