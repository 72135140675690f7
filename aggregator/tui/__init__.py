"""The screen of `denpex-agg watch`. Needs the extra `tui`: import it only where a person sits at a terminal."""
