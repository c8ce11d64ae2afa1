"""The regular expression that finds losses in the output of a command."""

import re
from functools import lru_cache

from slaq.core.errors import LossSourceError

#: Characters of a loss pattern.
LONGEST_PATTERN = 1000
#: Character classes, and ranges in them, of a pattern that names characters beyond ÿ. Python expands each of them
#: when it compiles the pattern, which takes up to 8 ms; those of other characters take a thousandth of that.
MOST_WIDE_CLASSES = MOST_WIDE_RANGES = 8
#: Patterns that are kept compiled.
KEPT = 1024
EXAMPLE = r"for example 'loss[ =:]+(\S+)'"

_WIDE = re.compile(r"[^\x00-\xff]|\\[uUN]")


def checked_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern; raises LossSourceError if the pattern cannot yield a loss."""
    if len(pattern) > LONGEST_PATTERN:
        raise LossSourceError(
            f"the loss pattern has {len(pattern)} characters", f"give at most {LONGEST_PATTERN}, {EXAMPLE}"
        )
    if _WIDE.search(pattern):
        for letter, what, most in (("[", "classes", MOST_WIDE_CLASSES), ("-", "ranges", MOST_WIDE_RANGES)):
            if pattern.count(letter) > most:
                raise LossSourceError(
                    f"the loss pattern has {pattern.count(letter)} character {what}, with characters beyond ÿ",
                    f"use at most {most} of them, {EXAMPLE}",
                )
    try:
        compiled = _compiled(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise LossSourceError(
            f"the loss pattern {pattern!r} is not a regular expression ({error})", f"correct it, {EXAMPLE}"
        ) from None
    if "loss" not in compiled.groupindex and compiled.groups != 1:
        raise LossSourceError(
            f"the loss pattern {pattern!r} has {compiled.groups} groups and none is named 'loss'",
            f"put the loss in the only group, or in one named (?P<loss>...), {EXAMPLE}",
        )
    return compiled


@lru_cache(maxsize=KEPT)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
