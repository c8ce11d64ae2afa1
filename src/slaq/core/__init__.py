"""The decisions: pure functions of their arguments, without clock, disk or random numbers."""
