"""The kinds of jobs that a service runs: a module for each, and what they share."""
