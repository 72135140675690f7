"""SQL over the lines and the signals of a job."""
