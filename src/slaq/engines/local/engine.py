"""The engine of one machine: hands starts, stops and grants to the runner of each job's kind."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from slaq.core.allocation import Allocation
from slaq.core.errors import UnknownJobError
from slaq.core.events import Event
from slaq.core.job import JobSpec
from slaq.engines.journal import Journal, Runner
from slaq.ports import Engine

#: Units there are in all, about: few enough to be counted, enough to share a small machine finely.
UNITS = 64


def cores_here() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usual_units_per_core(cores: int) -> int:
    """Return into how many units a core is cut: fractions on a small machine, whole cores on a large one."""
    return max(1, round(UNITS / cores))


class LocalEngine(Engine):
    """Jobs of several kinds on one machine's cores.

    Each job is assigned to the runner of its kind before it is started.
    """

    def __init__(self, journal: Journal, runners: Sequence[Runner[Any]], units: int) -> None:
        self._journal = journal
        self._runners = tuple(runners)
        self._units = units
        self._runner: dict[str, Runner[Any]] = {}

    def assign(self, job_id: str, runner: Runner[Any]) -> None:
        """Say which runner a job is for."""
        self._runner[job_id] = runner

    @override
    def capacity(self) -> int:
        return self._units

    @override
    def start(self, spec: JobSpec, checkpoint: bytes | None) -> None:
        if spec.id not in self._runner:
            raise UnknownJobError(spec.id)
        self._runner[spec.id].start(spec, checkpoint)

    @override
    def stop(self, job_id: str) -> None:
        if job_id in self._runner:
            self._runner[job_id].stop(job_id)

    @override
    def grant(self, allocation: Allocation) -> None:
        granted = allocation.as_dict()
        for runner in self._runners:
            runner.grant(self._of(runner, granted))

    @override
    def poll(self) -> Sequence[Event]:
        return self._journal.take()

    def finish(self, job_id: str, reason: str) -> None:
        """End a job as completed: it has done what was asked."""
        if job_id in self._runner:
            self._runner[job_id].finish(job_id, reason)

    def close(self) -> None:
        """End every job and leave no process behind."""
        for runner in self._runners:
            runner.close()

    def _of(self, runner: Runner[Any], granted: Mapping[str, int]) -> dict[str, int]:
        return {job_id: units for job_id, units in granted.items() if self._runner.get(job_id) is runner}
