"""Follows a running job: what `denpex-agg watch` does between its command line and its screen."""
