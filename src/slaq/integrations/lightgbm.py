"""Losses of LightGBM: `callbacks=[LightGBMCallback()]`, of `lightgbm.train` or of an estimator's `fit`."""

from typing import Any

from slaq.integrations.callbacks import LossReports


class LightGBMCallback:
    """Reports after each round what LightGBM evaluates: give it `valid_sets`, or an estimator its `eval_set`.

    `metric` is the name of the data with that of the number, such as `valid_0-binary_logloss`, or of the number
    alone; without it, the first number of which LightGBM says that less is better.
    """

    #: Before early stopping, which ends the round by raising.
    order = 20
    before_iteration = False

    def __init__(self, metric: str | None = None) -> None:
        self._reports = LossReports("LightGBM", metric, remedy="give it valid_sets, or an estimator eval_set")

    def __call__(self, env: Any) -> None:
        """Report the numbers of a round."""
        # Of a cross-validation, a deviation stands behind each.
        found = [
            (f"{data}-{name}", value, up) for data, name, value, up, *_ in env.evaluation_result_list or ()
        ]
        self._reports.tell(
            {name: value for name, value, _ in found},
            step=env.iteration + 1,
            total=env.end_iteration,
            rising={name for name, _, up in found if up},
        )
        self._reports.close()
