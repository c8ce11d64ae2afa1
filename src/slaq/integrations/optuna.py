"""The best value of an Optuna study: `study.optimize(..., callbacks=[OptunaCallback(total=100)])`."""

from typing import Any

from slaq.reporting import report


class OptunaCallback:
    """Reports after each trial the best value so far, and the trial's own beside it as `value`.

    An iteration is a finished trial of the study, those of earlier runs from the same storage included. `total` is
    how many there will be in the end. Of a study with several objectives, `objective` is the number of the one that
    is reported. Submit the job with `--maximize` where the study maximizes it.
    """

    def __init__(self, total: int | None = None, objective: int = 0) -> None:
        self._total = total
        self._objective = objective

    def __call__(self, study: Any, trial: Any) -> None:
        """Report what the study has reached with this trial."""
        place = self._objective
        ended = [one for one in study.get_trials(deepcopy=False) if one.state.is_finished()]
        values = [one.values[place] for one in ended if one.state.name == "COMPLETE"]
        if not values:
            return
        best = (max if study.directions[place].name == "MAXIMIZE" else min)(values)
        beside = {} if trial.values is None else {"value": trial.values[place]}
        report(best, step=len(ended), total=self._total, **beside)
