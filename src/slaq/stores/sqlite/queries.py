"""The SQL of the durable store, by name: queries.sql."""

from importlib.resources import files


def _sections(text: str) -> dict[str, str]:
    """Return what follows each line `-- name:`, up to the next."""
    named = (section.partition("\n") for section in text.split("-- name: ")[1:])
    return {name.strip(): body.strip().rstrip(";") for name, _, body in named}


SQL = _sections((files("slaq.stores.sqlite") / "queries.sql").read_text(encoding="utf-8"))
