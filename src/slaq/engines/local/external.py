"""Jobs that run elsewhere: the engine starts nothing, passes on what they report, and knows what they may use."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from typing_extensions import override

from slaq.core.errors import DuplicateJobError, UnknownJobError
from slaq.core.job import JobSpec, JobState, Observation
from slaq.engines.journal import SHUT_DOWN, Ending, Journal, Runner
from slaq.engines.limits import Goal, why_enough
from slaq.engines.processes.sources import NewRate, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalJob:
    """What ends a job, and where it goes on from what was reported before."""

    goal: Goal = field(default_factory=Goal)
    last_iteration: int = -1
    first_loss: float | None = None
    #: How far into its reports they have been taken in.
    reach: int = 0


@dataclass(slots=True)
class _Run:
    job: ExternalJob
    iteration: int
    first_loss: float | None
    reach: int
    #: Unix time and CPU seconds of its last report.
    at: float | None = None
    cpu: float | None = None


class ExternalRunner(Runner[ExternalJob]):
    """Passes reports on as they come; may be called from any thread."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = threading.Lock()
        self._prepared: dict[str, ExternalJob] = {}
        self._runs: dict[str, _Run] = {}

    @override
    def prepare(self, job_id: str, job: ExternalJob) -> None:
        with self._lock:
            if job_id in self._prepared or job_id in self._runs:
                raise DuplicateJobError(job_id)
            self._prepared[job_id] = job

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        with self._lock:
            if spec.id not in self._prepared:
                raise UnknownJobError(spec.id)
            job = self._prepared.pop(spec.id)
            self._runs[spec.id] = _Run(
                job=job, iteration=job.last_iteration, first_loss=job.first_loss, reach=job.reach
            )

    def running(self, job_id: str) -> bool:
        """Return whether the job was started and has not ended."""
        return job_id in self._runs

    def reach(self, job_id: str) -> int | None:
        """Return how far into a job's reports they have been passed on; None where it does not run."""
        run = self._runs.get(job_id)
        return None if run is None else run.reach

    def report(self, job_id: str, readings: Iterable[Reading | NewRate], reach: int) -> None:
        """Pass on what a job has reported up to there; what comes after its end is dropped."""
        with self._lock:
            run = self._runs.get(job_id)
            if run is not None:
                run.reach = reach
            for item in readings:
                if run is None:
                    return
                if isinstance(item, NewRate):
                    self._journal.learning_rate_changed(job_id, item.learning_rate)
                elif reason := self._observe(job_id, run, item):
                    run = None
                    self._conclude(job_id, Ending(state=JobState.COMPLETED, reason=reason))

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """Take note that the job has ended, as whoever runs it says."""
        with self._lock:
            self._conclude(job_id, Ending(state=state, reason=reason))

    @override
    def stop(self, job_id: str) -> None:
        self.end(job_id, JobState.CANCELLED, "stopped on request")

    @override
    def finish(self, job_id: str, reason: str) -> None:
        self.end(job_id, JobState.COMPLETED, reason)

    @override
    def grant(self, units: Mapping[str, int]) -> None:
        """Nothing to do: whoever runs the job asks what it may use."""

    @override
    def close(self) -> None:
        with self._lock:
            for job_id in tuple(self._runs):
                self._conclude(job_id, Ending(state=JobState.CANCELLED, reason=SHUT_DOWN))

    def _observe(self, job_id: str, run: _Run, seen: Reading) -> str:
        """Pass on one loss; return why the job is to end now, or nothing."""
        run.iteration += 1
        cpu = wall = 0.0
        if seen.at is not None and run.at is not None:
            wall = max(seen.at - run.at, 0.0)
        if seen.cpu is not None and run.cpu is not None:
            cpu = max(seen.cpu - run.cpu, 0.0)
        run.at, run.cpu = seen.at, seen.cpu
        if run.first_loss is None:
            run.first_loss = seen.loss
        observation = Observation(iteration=run.iteration, loss=seen.loss, cpu_seconds=cpu, wall_seconds=wall)
        self._journal.observed(job_id, observation, seen.metrics, seen.reach)
        return why_enough(run.job.goal, run.iteration, run.first_loss, seen.loss)

    def _conclude(self, job_id: str, ending: Ending) -> None:
        if self._runs.pop(job_id, None) is not None:
            self._journal.ended(job_id, ending)
