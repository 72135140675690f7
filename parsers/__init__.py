"""Text and dumps in, typed rows out. Usable without `aggregator`."""
