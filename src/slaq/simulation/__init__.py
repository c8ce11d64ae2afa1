"""Simulation: another clock and another engine under the same scheduler, and the workloads to run."""
