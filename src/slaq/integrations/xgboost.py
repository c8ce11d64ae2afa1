"""Losses of XGBoost: `callbacks=[XGBoostCallback(total=500)]`, of `xgboost.train` or of an estimator."""

from collections.abc import Mapping
from typing import Any

from slaq.integrations.callbacks import LossReports, framework

with framework("XGBoost", "xgboost"):
    from xgboost.callback import TrainingCallback


class XGBoostCallback(TrainingCallback):
    """Reports after each round what XGBoost evaluates: give it `evals`, or an estimator its `eval_set`.

    `metric` is the name of the data with that of the number, such as `validation_0-logloss`, or of the number
    alone; without it, the first number that does not rise. `total` is the number of rounds, which XGBoost does not
    tell.
    """

    def __init__(self, metric: str | None = None, total: int | None = None) -> None:
        self._reports = LossReports("XGBoost", metric, remedy="give it evals, or an estimator eval_set")
        self._total = total

    def after_iteration(self, model: Any, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        """Report the numbers of a round, and go on."""
        numbers = {
            # Of a cross-validation, a number is a pair of its mean and its deviation.
            f"{data}-{name}": history[-1][0] if isinstance(history[-1], tuple) else history[-1]
            for data, found in evals_log.items()
            for name, history in found.items()
        }
        self._reports.tell(numbers, step=epoch + 1, total=self._total)
        self._reports.close()
        return False
