"""The regular expression that finds losses in the output of a command."""

import re

from slaq.core.errors import LossSourceError

#: Characters of a loss pattern.
LONGEST_PATTERN = 1000
EXAMPLE = r"for example 'loss[ =:]+(\S+)'"


def checked_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern; raises LossSourceError if the pattern cannot yield a loss."""
    if len(pattern) > LONGEST_PATTERN:
        raise LossSourceError(
            f"the loss pattern has {len(pattern)} characters", f"give at most {LONGEST_PATTERN}, {EXAMPLE}"
        )
    try:
        compiled = re.compile(pattern)
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
