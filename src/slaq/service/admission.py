"""The reasons to hold a job back that only a service knows: it is paused, or its owner holds enough."""

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
