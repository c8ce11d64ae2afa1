"""What the callbacks share: which number is reported as the loss, and the error where a framework is missing."""

import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from typing import SupportsFloat

from slaq.core.errors import MissingFrameworkError
from slaq.reporting import heard, report

#: Names of numbers that rise: none of them is taken for a loss unless it is named.
RISING = re.compile(
    r"acc|auc|map|ndcg|f1|precision|recall|r2|reward|kappa|mcc|bleu|rouge|score", re.IGNORECASE
)
#: Names that `slaq.report` has a meaning for, and what such a number is called beside the loss.
_TAKEN = {"loss": "train_loss", "step": "its_step", "total": "its_total"}


class LossReports:
    """Reports one of the numbers that a framework gives for an iteration as the loss, the others beside it.

    `metric` is the name of that number, or its name within a data set. Without one, the first number that does not
    rise is taken, and kept to.
    """

    def __init__(self, framework: str, metric: str | None = None, *, remedy: str) -> None:
        self._framework = framework
        #: What to do where no numbers come.
        self._remedy = remedy
        self._metric = metric
        self._seen: dict[str, None] = {}
        self._told = False

    def tell(
        self,
        numbers: Mapping[str, object],
        *,
        step: int,
        total: float | None = None,
        rising: Collection[str] = (),
    ) -> None:
        """Report the numbers of iteration `step`; nothing where the loss is not among them."""
        if not heard():
            return
        found = {name: value for name, value in numbers.items() if isinstance(value, SupportsFloat)}
        self._seen |= dict.fromkeys(found)
        name = self._name(found, rising)
        if name is None:
            return
        self._metric, self._told = name, True
        beside = {_TAKEN.get(other, other): value for other, value in found.items() if other != name}
        known = total is not None and 1 <= total < inf
        report(found[name], step=step, total=total if known else None, **beside)

    def close(self) -> None:
        """Warn where numbers have come and the loss was not among them."""
        if self._told or not heard():
            return
        self._told = True
        wanted = "loss" if self._metric is None else repr(self._metric)
        what = f"slaq hears no {wanted}: {self._framework} gives "
        if self._seen:
            names = ", ".join(self._seen)
            what += (
                f"{names}; name one of these as metric, and submit the job with --maximize if it should rise"
            )
        else:
            what += f"no numbers; {self._remedy}"
        warnings.warn(what, stacklevel=3)

    def _name(self, found: Mapping[str, object], rising: Collection[str]) -> str | None:
        """Return the name of the number that is the loss; None where it is not there."""
        if self._metric is None:
            falling = (name for name in found if name not in rising and not RISING.search(name))
            return next(falling, None)
        if self._metric in found:
            return self._metric
        return next((name for name in found if name.endswith(f"-{self._metric}")), None)


@contextmanager
def framework(name: str, package: str) -> Iterator[None]:
    """Raise MissingFrameworkError if the import in the block fails because the framework is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingFrameworkError(name, package) from error
