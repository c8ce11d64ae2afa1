"""The runner of jobs that run elsewhere: starts nothing, and passes on what they report."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from slaq.core.job import JobState, Observation
from slaq.core.progress import is_number
from slaq.engines.goals import Goal
from slaq.engines.journal import SHUT_DOWN, Ending, Journal
from slaq.engines.node.reports import Item, NewDemand, NewRate, NewTotal, Reading
from slaq.engines.node.runner import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalJob:
    """What ends a job, and what was known of it before."""

    goal: Goal = field(default_factory=Goal)
    last_iteration: int = -1
    first_loss: float | None = None
    #: The bytes of its reports that were passed on.
    reach: int = 0


@dataclass(slots=True)
class _ExternalRun:
    job: ExternalJob
    iteration: int
    first_loss: float | None
    reach: int
    #: Unix time and CPU seconds of its last report.
    at: float | None = None
    cpu: float | None = None
    #: How many iterations it last said it will make in all.
    total: int | None = None


class ExternalRunner(Runner[ExternalJob]):
    """Passes reports on as they arrive; may be called from any thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._prepared: dict[str, ExternalJob] = {}
        self._runs: dict[str, _ExternalRun] = {}

    @override
    def prepare(self, job_id: str, work: ExternalJob) -> None:
        with self._lock:
            self._prepared[job_id] = work

    @override
    def start(self, job_id: str) -> None:
        with self._lock:
            job = self._prepared.pop(job_id)
            self._runs[job_id] = _ExternalRun(
                job=job, iteration=job.last_iteration, first_loss=job.first_loss, reach=job.reach
            )

    def running(self, job_id: str) -> bool:
        """Return whether the job was started and has not ended."""
        return job_id in self._runs

    def reach(self, job_id: str) -> int | None:
        """Return how many bytes of a job's reports were passed on; None where the job does not run."""
        run = self._runs.get(job_id)
        return None if run is None else run.reach

    def report(self, job_id: str, readings: Iterable[Item], reach: int) -> None:
        """Pass on what a job has reported up to byte `reach`; reports after its end are dropped."""
        with self._lock:
            run = self._runs.get(job_id)
            if run is not None:
                run.reach = reach
            for item in readings:
                if run is None:
                    return
                if isinstance(item, NewRate):
                    self._journal.learning_rate_changed(job_id, item.learning_rate)
                elif isinstance(item, NewDemand):
                    self._journal.demand_changed(job_id, item.demand)
                elif isinstance(item, NewTotal):
                    if item.iterations != run.total:
                        run.total = item.iterations
                        self._journal.end_foreseen(job_id, item.iterations)
                elif isinstance(item, Reading) and (ending := self._observe(job_id, run, item)):
                    run = None
                    self._conclude(job_id, ending)

    @override
    def end(self, job_id: str, state: JobState, reason: str) -> None:
        with self._lock:
            self._conclude(job_id, Ending(state=state, reason=reason))

    @override
    def kill(self, job_id: str) -> None:
        """Do nothing: a job that is told to end has ended."""

    @override
    def grant(self, cores: Mapping[str, float], room: float) -> None:
        """Do nothing: the job is asked for its share through the service."""

    @override
    def close(self) -> None:
        with self._lock:
            for job_id in tuple(self._runs):
                self._conclude(job_id, Ending(state=JobState.CANCELLED, reason=SHUT_DOWN))

    def _observe(self, job_id: str, run: _ExternalRun, seen: Reading) -> Ending | None:
        """Pass on one loss; return how the job ends now, if it does."""
        iteration = run.iteration + 1 if seen.iteration is None else seen.iteration
        if iteration <= run.iteration:
            return None
        run.iteration = iteration
        cpu = wall = 0.0
        if seen.at is not None and run.at is not None:
            wall = max(seen.at - run.at, 0.0)
        if seen.cpu is not None and run.cpu is not None:
            cpu = max(seen.cpu - run.cpu, 0.0)
        run.at, run.cpu = seen.at, seen.cpu
        observation = Observation(iteration=run.iteration, loss=seen.loss, cpu_seconds=cpu, wall_seconds=wall)
        self._journal.observed(job_id, observation, seen.metrics, seen.reach)
        goal = run.job.goal
        if reason := goal.astray(seen.loss):
            return Ending(state=JobState.DIVERGED, reason=reason)
        if not is_number(seen.loss):
            return None
        if run.first_loss is None:
            run.first_loss = seen.loss
        reason = goal.reached(run.iteration, run.first_loss, seen.loss)
        return Ending(state=JobState.COMPLETED, reason=reason) if reason else None

    def _conclude(self, job_id: str, ending: Ending) -> None:
        if self._runs.pop(job_id, None) is not None:
            self._journal.ended(job_id, ending)
