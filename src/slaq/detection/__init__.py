"""Finds the losses in what unmodified training scripts print and write."""
