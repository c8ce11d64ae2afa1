"""Thin adapters by which other libraries' training becomes a slaq job; each loads its library on first use."""
