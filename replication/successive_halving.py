"""Asynchronous successive halving as a referee: jobs that are not among the best at a rung are stopped there.

ASHA (Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020), in the form that stops
jobs at once instead of pausing them: rungs stand at r, r x eta, r x eta^2, ... iterations, and a job that reaches
one goes on only if its loss is among the best 1/eta of all that have reached it so far. It compares the losses of
different jobs, so all of them must train for the same task. It is no `Policy`: those divide units by gains, see no
job's own loss, and stop nobody.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from slaq.core.decision import Decision
from slaq.core.events import LossObserved
from slaq.ports import History


@dataclass(slots=True, kw_only=True)
class SuccessiveHalving:
    """Stops jobs at rungs; to be given to a `Simulation` as its referee, anew for each run."""

    #: Iterations at the lowest rung.
    first_rung: int = 1
    #: One in so many goes on.
    eta: int = 3
    #: Losses at each rung, of all jobs that have reached it.
    _rungs: dict[int, list[float]] = field(default_factory=dict)
    #: The rung each job will reach next, and how many of its events have been read.
    _next: dict[str, int] = field(default_factory=dict)
    _read: dict[str, int] = field(default_factory=dict)

    def __call__(self, decision: Decision, history: History) -> Iterator[str]:
        """Yield the jobs to stop."""
        for job_id in decision.ids:
            events = history.events(job_id)
            fresh = events[self._read.get(job_id, 0) :]
            self._read[job_id] = len(events)
            losses = [event.observation for event in fresh if isinstance(event, LossObserved)]
            if any(not self._goes_on(job_id, seen.iteration, seen.loss) for seen in losses):
                yield job_id

    def _goes_on(self, job_id: str, iteration: int, loss: float) -> bool:
        """Return whether a job with this loss may go on; it must not only where it stands at a rung."""
        rung = self._next.setdefault(job_id, self.first_rung)
        if iteration < rung:
            return True
        self._next[job_id] = rung * self.eta
        peers = self._rungs.setdefault(rung, [])
        peers.append(loss)
        # While fewer than eta have come, the best so far goes on.
        kept = max(len(peers) // self.eta, 1)
        return loss <= sorted(peers)[kept - 1]
