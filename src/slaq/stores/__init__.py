"""Stores: where jobs, events and decisions are kept."""
