"""Checks on hyperparameters: each returns the value as it will be used, or says what was expected."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from slaq.core.errors import HyperparameterError


def whole(algorithm: object, name: str, *, at_least: int) -> int:
    """Return the attribute as a whole number of at least so much."""
    value = getattr(algorithm, name)
    if not _is_whole(value) or value < at_least:
        raise _error(algorithm, name, f"a whole number of at least {at_least}")
    return int(value)


def real(algorithm: object, name: str, *, above: float = -math.inf, at_least: float = -math.inf) -> float:
    """Return the attribute as a finite number above, or at least, so much."""
    value = getattr(algorithm, name)
    if not _is_real(value) or value <= above or value < at_least:
        bound = f"above {above:g}" if above > at_least else f"of at least {at_least:g}"
        raise _error(algorithm, name, "a number" if above == at_least == -math.inf else f"a number {bound}")
    return float(value)


def optional_real(algorithm: object, name: str, *, above: float) -> float | None:
    """Return the attribute as `real` does, or None where it is None."""
    return None if getattr(algorithm, name) is None else real(algorithm, name, above=above)


def choice(algorithm: object, name: str, known: Iterable[str]) -> str:
    """Return the attribute, which is one of the known words."""
    value, words = getattr(algorithm, name), tuple(known)
    if not isinstance(value, str) or value not in words:
        raise _error(algorithm, name, " or ".join(repr(word) for word in words))
    return value


def flag(algorithm: object, name: str) -> bool:
    """Return the attribute, which is true or false."""
    value = getattr(algorithm, name)
    if not isinstance(value, bool):
        raise _error(algorithm, name, "true or false")
    return value


def wholes(algorithm: object, name: str, *, at_least: int) -> tuple[int, ...]:
    """Return the attribute as a tuple of whole numbers of at least so much each."""
    value = getattr(algorithm, name)
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(_is_whole(item) and item >= at_least for item in value)
    ):
        raise _error(algorithm, name, f"a list of whole numbers of at least {at_least}")
    return tuple(int(item) for item in value)


def _is_whole(value: Any) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, (bool, str)) and math.isfinite(value)


def _error(algorithm: object, name: str, expected: str) -> HyperparameterError:
    return HyperparameterError(type(algorithm).__name__, name, getattr(algorithm, name), expected)
