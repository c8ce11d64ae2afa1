"""The engine of one machine: one node, called directly."""

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from slaq.core.events import Event
from slaq.core.job import JobSpec, JobState
from slaq.engines.node.node import Node
from slaq.ports import Engine


class LocalEngine(Engine):
    """Jobs of several kinds on one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def prepare(self, job_id: str, work: Any) -> None:
        """Take what a job does, so that it can be started by its id; raises where that cannot run."""
        self._node.prepare(job_id, work)

    @override
    def capacity(self) -> float:
        return self._node.capacity()

    @override
    def start(self, spec: JobSpec) -> None:
        self._node.start(spec.id)

    @override
    def stop(self, job_id: str) -> None:
        self._node.end(job_id, JobState.CANCELLED, "stopped on request")

    def finish(self, job_id: str, reason: str) -> None:
        """End a job as completed: it has done what was asked."""
        self._node.end(job_id, JobState.COMPLETED, reason)

    def kill(self, job_id: str) -> None:
        """End a job at once that was told to end."""
        self._node.kill(job_id)

    @override
    def grant(self, cores: Mapping[str, float]) -> None:
        self._node.grant(cores)

    @override
    def poll(self) -> Sequence[Event]:
        return [entry.event for entry in self._node.poll()]

    def close(self) -> None:
        """End every job and leave no process behind."""
        self._node.close()
