"""Reads `trainer_state.json`, which the Trainer of Hugging Face writes with each checkpoint."""

import json

from slaq.detection.names import LONGEST_NAME
from slaq.detection.output import LARGEST_STEP
from slaq.detection.point import Point

#: Bytes of a file that are read, and numbers that are taken from it.
LARGEST_FILE, MOST_POINTS = 16 << 20, 100_000


def read_trainer_state(content: bytes) -> list[Point] | None:
    """Return all numbers that were logged so far, in order; None for what is not whole yet, or no such file."""
    try:
        state = json.loads(content)
    except (ValueError, RecursionError):
        return None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        return None
    total = _whole(state.get("max_steps"))
    points: list[Point] = []
    for entry in history:
        if not isinstance(entry, dict):
            continue
        step = _whole(entry.get("step"))
        for name, value in entry.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or name in ("step", "epoch"):
                continue
            if 0 < len(name) <= LONGEST_NAME and name.isprintable() and len(points) < MOST_POINTS:
                try:
                    points.append(Point(series=name, value=float(value), step=step, total=total))
                except OverflowError:
                    continue
    return points


def _whole(value: object) -> int | None:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_STEP
    return value if fits and isinstance(value, int) else None
