"""Everything that decides: pure functions of their arguments, without clock, disk or chance."""
