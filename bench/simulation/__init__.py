"""Training jobs with known faults: who failed, when, and what every clock showed is known by construction."""
