"""Optuna's own pruners as referees: each job is a trial, and ends where it is pruned.

Only pruning is Optuna's here: the configurations are given, and none depends on what others have shown.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import optuna

from slaq.core.decision import Decision
from slaq.core.events import JobEnded, LossObserved
from slaq.core.job import JobState
from slaq.ports import History

#: The pruners by name, each made anew for a search whose configurations train for so many iterations at most.
PRUNERS: dict[str, Callable[[int], optuna.pruners.BasePruner]] = {
    "MedianPruner": lambda most: optuna.pruners.MedianPruner(),
    "SuccessiveHalvingPruner": lambda most: optuna.pruners.SuccessiveHalvingPruner(),
    "HyperbandPruner": lambda most: optuna.pruners.HyperbandPruner(min_resource=1, max_resource=most),
}


@dataclass(slots=True)
class OptunaPruner:
    """Stops the jobs that a pruner prunes; to be given to a `Simulation` as its referee, anew for each run."""

    study: optuna.Study
    _trials: dict[str, optuna.Trial] = field(default_factory=dict)
    #: How many events of each job have been read.
    _read: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, iterations: int, seed: int) -> "OptunaPruner":
        """Return the pruner of that name."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.RandomSampler(seed=seed)
        # Hyperband draws its brackets by the name of the study, which is random unless given.
        pruner = PRUNERS[name](iterations)
        return cls(optuna.create_study(sampler=sampler, pruner=pruner, study_name=f"search {seed}"))

    def __call__(self, decision: Decision, history: History) -> Iterator[str]:
        """Yield the jobs to stop."""
        for job_id in decision.ids:
            if job_id not in self._trials:
                self._trials[job_id] = self.study.ask()
        # Those that have ended since are not in the decision any more, and pruners learn from them.
        for job_id, trial in self._trials.items():
            events = history.events(job_id)
            fresh = events[self._read.get(job_id, 0) :]
            self._read[job_id] = len(events)
            pruned = False
            for event in fresh:
                if isinstance(event, LossObserved):
                    trial.report(event.observation.loss, event.observation.iteration)
                    pruned = pruned or trial.should_prune()
                elif isinstance(event, JobEnded):
                    completed = event.state is JobState.COMPLETED
                    self._tell(trial, completed=completed)
                    pruned = False
            if pruned:
                yield job_id

    def _tell(self, trial: optuna.Trial, *, completed: bool) -> None:
        if completed:
            last = self.study.trials[trial.number].intermediate_values
            self.study.tell(trial, last[max(last)])
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
