"""The interface of what runs one kind of jobs on a node."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from slaq.core.job import JobState
from slaq.engines.node.share_file import ShareFile

#: What a runner has to know of a job to run it.
Work_contra = TypeVar("Work_contra", contravariant=True)


class Runner(Protocol[Work_contra]):
    """Runs one kind of jobs, and tells the journal what becomes of them.

    The laws are those of an engine, for the jobs of this kind; the node refuses ids that are unknown or used twice.
    May be called from any thread.
    """

    def prepare(self, job_id: str, work: Work_contra) -> ShareFile | None:
        """Take what a job does; return where the job reads its share, if it runs here. Raises if it cannot run."""
        ...

    def start(self, job_id: str) -> None:
        """Begin a job that was prepared, or let one that was lost go on."""
        ...

    def end(self, job_id: str, state: JobState, reason: str) -> None:
        """End a job in that state; a job that has ended or is unknown is left alone."""
        ...

    def kill(self, job_id: str) -> None:
        """End a job at once that was told to end; any other is left alone."""
        ...

    def grant(self, cores: Mapping[str, float], room: float) -> None:
        """Resize every job of this kind at once; one that is not named holds nothing from now on.

        `room` is the cores that jobs of this kind may use together: what some leave idle is for the others.
        """
        ...

    def close(self) -> None:
        """End every job and leave nothing behind."""
        ...
