"""The reasons to hold a job back that only a service has: a pause, an owner's limit, a store that is full."""

from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from slaq.core.admission import Rule, Running
from slaq.core.job import JobSpec


@dataclass(frozen=True, slots=True)
class Paused(Rule):
    """A paused job is not started."""

    #: Returns whether the job of that id is paused.
    paused: Callable[[str], bool]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        return "is paused" if self.paused(spec.id) else ""


@dataclass(frozen=True, slots=True)
class StoreWritable(Rule):
    """No job starts while the store cannot be written, because no start could be stored."""

    #: Returns why the store cannot be written; empty when all is well.
    trouble: Callable[[], str]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        trouble = self.trouble()
        return f"waits because the store cannot be written: {trouble}" if trouble else ""


@dataclass(frozen=True, slots=True)
class CoresOfOwner(Rule):
    """The cores that an owner's running jobs hold at least, and this one's, fit into what the owner may hold."""

    #: The limit of an owner; None for no limit.
    most: Callable[[str], float | None]

    @override
    def reason(self, spec: JobSpec, running: Running) -> str:
        most, wanted = self.most(spec.owner), spec.demand.least
        if most is None or not wanted or not running.by_owner.get(spec.owner):
            return ""
        taken = sum(job.demand.least for job in running.jobs.values() if job.owner == spec.owner)
        if taken + wanted <= most:
            return ""
        return (
            f"waits because {spec.owner} may hold {most:g} cores, of which running jobs hold at least {taken:g}, "
            f"and the job needs {wanted:g}"
        )
