"""Adapters that make training with other libraries a job; each imports its library on first use."""
