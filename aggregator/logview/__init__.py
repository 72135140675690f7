"""The lines of all ranks as one log, in the order in which they were written."""
