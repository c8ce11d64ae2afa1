"""Reads numbers and JSON objects in what a job wrote; whatever else is there is nothing."""

import json


def json_object(line: bytes | str) -> dict[str, object]:
    """Return the JSON object in a line; an empty one where there is none."""
    # To look is far cheaper than to try: whoever writes millions of empty lines wants them to be tried.
    if not (line.lstrip().startswith(b"{") if isinstance(line, bytes) else line.lstrip().startswith("{")):
        return {}
    try:
        # Given bytes, json first guesses their encoding, which takes longer than all the rest.
        record = json.loads(line.decode(errors="replace") if isinstance(line, bytes) else line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def number(value: object) -> float | None:
    """Return a number, or a text that is one, as a float; None for anything else."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
