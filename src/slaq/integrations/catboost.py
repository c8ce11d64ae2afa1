"""Losses of CatBoost: `model.fit(..., callbacks=[CatBoostCallback(total=500)])`, on the CPU."""

from typing import Any

from slaq.integrations.callbacks import LossReports


class CatBoostCallback:
    """Reports after each iteration what CatBoost measures: on what it learns from, and on its `eval_set`.

    `metric` is the name of the data with that of the number, such as `validation-Logloss`, or of the number alone;
    without it, the first number that does not rise. `total` is the number of iterations: CatBoost does not tell it.
    """

    def __init__(self, metric: str | None = None, total: int | None = None) -> None:
        self._reports = LossReports("CatBoost", metric, remedy="give it eval_set")
        self._total = total

    def after_iteration(self, info: Any) -> bool:
        """Report the numbers of an iteration, and go on."""
        numbers = {
            f"{data}-{name}": history[-1]
            for data, found in (info.metrics or {}).items()
            for name, history in found.items()
        }
        self._reports.tell(numbers, step=info.iteration, total=self._total)
        self._reports.close()
        return True
