"""The engine of this machine: one node in this process."""
