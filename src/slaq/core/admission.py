"""Admission: decide which queued jobs start now, and give the reason for each job that waits."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from typing_extensions import override

from slaq.core.job import JobSpec, JobState

#: The reason of a queued job that no review has looked at yet.
NOT_REVIEWED = "waits for the next decision"


@dataclass(slots=True)
class Running:
    """The jobs that have started and not ended, with totals of what they use."""

    jobs: dict[str, JobSpec] = field(default_factory=dict)
    #: Number of jobs by owner.
    by_owner: dict[str, int] = field(default_factory=dict)
    #: Total of the bytes that these jobs declared.
    memory: int = 0

    def begin(self, spec: JobSpec) -> None:
        """Count a job that starts; do nothing if it is already counted."""
        if spec.id not in self.jobs:
            self.jobs[spec.id] = spec
            self.by_owner[spec.owner] = self.by_owner.get(spec.owner, 0) + 1
            self.memory += spec.demand.memory or 0

    def end(self, job_id: str) -> None:
        """Stop counting a job; do nothing if it is not counted."""
        spec = self.jobs.pop(job_id, None)
        if spec is not None:
            self.by_owner[spec.owner] -= 1
            self.memory -= spec.demand.memory or 0


class Rule(Protocol):
    """One reason for which a queued job may have to wait."""

    def reason(self, spec: JobSpec, running: Running) -> str:
        """Return in one sentence why the job must wait beside the running jobs; empty if it may start."""
        ...


@dataclass(frozen=True, slots=True)
class MostJobs(Rule):
    """Limits the number of running jobs."""

    most: Callable[[], int]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        most = self.most()
        if len(running.jobs) < most:
            return ""
        if not most:
            return "waits because no jobs may run now (concurrent is 0)"
        return f"waits because {_jobs(most)} may run at a time"


@dataclass(frozen=True, slots=True)
class MostJobsOfOwner(Rule):
    """Limits the number of running jobs of each owner."""

    #: The limit of an owner; None for no limit.
    most: Callable[[str], int | None]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        most = self.most(spec.owner)
        if most is None or running.by_owner.get(spec.owner, 0) < most:
            return ""
        owner = spec.owner or "one owner"
        if not most:
            return f"waits because no jobs of {owner} may run now (max_running is 0)"
        return f"waits because {_jobs(most)} of {owner} may run at a time"


@dataclass(frozen=True, slots=True)
class MemoryRoom(Rule):
    """Limits the total memory that running jobs declared to the memory of the machine.

    A job that declares more memory than the machine has starts when no other job with declared memory runs.
    """

    #: Returns the bytes available to jobs.
    there_are: Callable[[], int]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        wanted, there_are = spec.demand.memory or 0, self.there_are()
        if not wanted or not running.memory or running.memory + wanted <= there_are:
            return ""
        free = max(there_are - running.memory, 0)
        return f"waits for memory: it needs {_gigabytes(wanted)}, and {_gigabytes(free)} are free"


@dataclass(frozen=True, slots=True)
class DescriptorRoom(Rule):
    """Limits the running jobs by the file descriptors that a process may open."""

    each: int
    #: Returns the descriptors available to jobs.
    there_are: Callable[[], int]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        there_are = self.there_are()
        if (len(running.jobs) + 1) * self.each <= there_are:
            return ""
        return f"waits for file descriptors: {there_are} are enough for {_jobs(there_are // self.each)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The queued jobs that start now, and the reasons of the due jobs that wait."""

    start: tuple[JobSpec, ...] = ()
    #: By job id: one sentence on why the job waits.
    held: Mapping[str, str] = field(default_factory=dict)
    #: By job id: one sentence on why the job will never start.
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Admission:
    """Decides which queued jobs start, in order of arrival; a job that waits does not delay the next."""

    rules: Sequence[Rule] = ()
    running: Running = field(default_factory=Running)
    #: Returns how a job ended that is neither queued nor running; None where nobody knows, which counts as well.
    ended: Callable[[str], JobState | None] = lambda _: None
    #: Writes a moment of the scheduler's clock for a person.
    written: Callable[[float], str] = "{:g} s".format

    def review(self, queued: Callable[[], Iterable[JobSpec]], now: float) -> Review:
        """Return the review of the queued jobs; `queued` returns them in order of arrival."""
        start: list[JobSpec] = []
        held: dict[str, str] = {}
        refused: dict[str, str] = {}
        unfinished: set[str] | None = None
        for spec in queued():
            if spec.arrival > now:
                break
            if (spec.after or spec.after_any) and unfinished is None:
                unfinished = {other.id for other in queued()} | self.running.jobs.keys()
            if reason := self._refusal(spec, unfinished or set()):
                refused[spec.id] = reason
            elif reason := self._reason(spec, unfinished or set()):
                held[spec.id] = reason
            else:
                self.running.begin(spec)
                start.append(spec)
        return Review(start=tuple(start), held=held, refused=refused)

    def reasons(self, review: Review, queued: Iterable[JobSpec], now: float) -> dict[str, str]:
        """Return for each job that is queued after a review, by id, one sentence on why the job waits."""
        return {
            spec.id: review.held.get(spec.id) or review.refused.get(spec.id, NOT_REVIEWED)
            if spec.arrival <= now
            else f"is not due before {self.written(spec.arrival)}"
            for spec in queued
        }

    def _refusal(self, spec: JobSpec, unfinished: set[str]) -> str:
        """Return why a job will never start: one that it comes after has ended, and not well."""
        for job_id in spec.after:
            state = None if job_id in unfinished else self.ended(job_id)
            if state is not None and state.ended and state is not JobState.COMPLETED:
                return f"was to start after job {job_id!r} completed, which has {state.perfect}"
        return ""

    def _reason(self, spec: JobSpec, unfinished: set[str]) -> str:
        for awaited, what in ((spec.after, "complete"), (spec.after_any, "end")):
            for job_id in awaited:
                if job_id in unfinished:
                    return f"waits for job {job_id!r} to {what}"
        return next((reason for rule in self.rules if (reason := rule.reason(spec, self.running))), "")


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count} jobs"


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.3g} GB"
